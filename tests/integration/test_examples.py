"""The applications in examples/, tested the way their users would."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CPU_LIMIT_S = 5.0


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("folder", sorted(EXAMPLES.glob("*/")), ids=lambda folder: folder.name)
@pytest.mark.long
def test_the_tests_of_an_example_pass_in_seconds(folder: Path):
    """Processor time: a busy machine takes longer."""
    before = cpu_of_children()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:xdist", "."],
        cwd=folder,
        env={**os.environ, "PYTEST_PLUGINS": "rocketbroker.testing.pytest_plugin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert cpu_of_children() - before < CPU_LIMIT_S
