"""Promises of the README for a machine with Python alone: commands from a clone without an environment."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.our_servers import ROOT

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=120)
    return clone


def run(clone: Path, command: str, *options: str) -> str:
    """Run a command of a clone, and return its output."""
    hidden = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "NAMESRV_ADDR"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    # No environment made by somebody else may be found first.
    folders = [folder for folder in environment["PATH"].split(os.pathsep) if ".venv" not in folder]
    environment |= {"HOME": str(clone.parent), "PATH": os.pathsep.join(folders)}
    done = subprocess.run(
        [clone / "bin" / command, *options],
        env=environment,
        cwd=clone.parent,
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_the_demo_runs_from_a_fresh_clone(clone: Path):
    printed = run(clone, "mqdev", "--demo", "--messages", "500")

    assert "Sent, received and counted agree: 500 messages, each exactly once." in printed
    assert (clone / ".venv").is_dir()


def test_servers_and_tools_install_the_core_alone(clone: Path):
    for command in ("mqbroker", "mqnamesrv", "mqdev", "mqadmin", "mqstore"):
        assert run(clone, command, "--version").startswith(f"{command} ")
    assert "listenPort=10911" in run(clone, "mqbroker", "-m")

    [packages] = (clone / ".venv" / "lib").glob("python*/site-packages")
    assert (packages / "numpy").is_dir()
    assert [name for name in ("aiohttp", "lz4", "pyspark", "zstandard") if (packages / name).exists()] == []
