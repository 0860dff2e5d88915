import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.warm_python import ForkedProcess, WarmPython, is_warm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")

BROKER = [sys.executable, "-P", "-m", "rocketbroker.app.broker_startup"]


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmPython]:
    made = WarmPython()
    yield made
    made.close()


def start(warm: WarmPython, folder: Path, *arguments: str, **environment: str) -> ForkedProcess:
    with (folder / "out").open("wb") as out:
        return warm.start([*BROKER, *arguments], folder, environment, out)


def test_a_command_runs_in_its_folder_with_its_variables_and_output(warm: WarmPython, tmp_path: Path):
    (tmp_path / "b.properties").write_text("brokerName=of-the-folder\n")
    process = start(warm, tmp_path, "-c", "b.properties", "-p", NAMESRV_ADDR="10.0.0.7:9876")
    assert process.wait(60) == 0
    printed = (tmp_path / "out").read_text()
    assert "of-the-folder" in printed
    assert "10.0.0.7:9876" in printed


def test_a_failure_has_its_status_and_message(warm: WarmPython, tmp_path: Path):
    process = start(warm, tmp_path, "--no-such-option")
    assert process.wait(60) == 2
    assert "no-such-option" in (tmp_path / "out").read_text()


def test_a_running_process_is_waited_for_and_killed(warm: WarmPython, tmp_path: Path):
    (tmp_path / "b.properties").write_text(f"listenPort=0\nstorePathRootDir={tmp_path}/store\n")
    process = start(warm, tmp_path, "-c", "b.properties")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    process.kill()
    assert process.wait(60) == -9
    process.terminate()  # nothing is left to end
    assert process.poll() == -9


def test_only_plain_commands_of_servers_are_warm():
    assert is_warm([*BROKER, "-p"])
    assert not is_warm(["nsenter", *BROKER])
    assert not is_warm([sys.executable, "-P", "-m", "rocketbroker.testing.mqdev"])
    assert not is_warm([sys.executable, "-P", "broker.py"])
