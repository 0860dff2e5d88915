"""What README promises for a machine with Python alone: the demo from a clone that has no environment yet."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.our_servers import ROOT

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


def test_the_demo_runs_from_a_fresh_clone(tmp_path: Path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=120)
    hidden = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "NAMESRV_ADDR"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    # No environment made by somebody else may be found first.
    folders = [folder for folder in environment["PATH"].split(os.pathsep) if ".venv" not in folder]
    environment |= {"HOME": str(tmp_path), "PATH": os.pathsep.join(folders)}

    done = subprocess.run(
        [clone / "bin" / "mqdev", "--demo", "--messages", "500"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Sent, received and counted agree: 500 messages, each exactly once." in done.stdout
    assert (clone / ".venv").is_dir()
