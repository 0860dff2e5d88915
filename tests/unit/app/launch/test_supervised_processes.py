"""Children that print the lines of servers: small programs, run as modules."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.app.launch import supervised_processes
from rocketbroker.app.launch.supervised_processes import Program, SupervisedProcesses
from rocketbroker.common.errors import ConfigError
from tests.support.running import stopping
from tests.support.waiting import until

SERVER = """\
import signal, sys
print("The broker[" + sys.argv[1] + ", 127.0.0.1:1234] boot success. serializeType=JSON", flush=True)
print("an error", file=sys.stderr, flush=True)
signal.pause()
"""
ENVIRONMENT = """\
import os, signal
print("The broker[a, 127.0.0.1:1234] boot success. serializeType=JSON", flush=True)
print("OWN", os.environ["OWN"], "GIVEN", os.environ["GIVEN"], flush=True)
signal.pause()
"""
FAILURE = "import sys; print('mqbroker: a.properties:1: listenPort: not a port'); sys.exit(1)"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that children can run."""
    (tmp_path / "meta_server.py").write_text(SERVER)
    (tmp_path / "meta_environment.py").write_text(ENVIRONMENT)
    (tmp_path / "meta_failure.py").write_text(FAILURE)
    path = [str(tmp_path), *filter(None, sys.path)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))


@pytest.fixture
async def processes(modules: None) -> AsyncIterator[SupervisedProcesses]:
    """Two servers, not started, that show their lines in ``shown``."""
    programs = [Program(name, "meta_server", (name,)) for name in ("a:0", "b:0")]
    shown: list[str] = []
    async with stopping(SupervisedProcesses(programs, shown.append)) as made:
        made.shown = shown  # type: ignore[attr-defined]
        yield made


def shown(processes: SupervisedProcesses) -> list[str]:
    lines: list[str] = processes.shown  # type: ignore[attr-defined]
    return lines


async def test_each_has_a_status_line_and_they_stop_in_reverse_order(processes: SupervisedProcesses):
    await processes.start()
    assert processes.addresses == {"a:0": "127.0.0.1:1234", "b:0": "127.0.0.1:1234"}
    ids = processes.process_ids
    await until(lambda: "[b:0] an error" in shown(processes))
    await processes.stop()

    lines = [line for line in shown(processes) if not line.startswith("[")]
    assert [line.split()[0] for line in lines] == ["a:0", "b:0", "b:0", "a:0"]
    assert lines[0].endswith(f"127.0.0.1:1234         ready, process {ids['a:0']}")
    assert lines[-1].endswith("stopped")


async def test_one_that_ends_is_started_again(processes: SupervisedProcesses, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervised_processes, "RESTART_S", 0.01)
    await processes.start()
    before = processes.process_ids
    os.kill(before["a:0"], signal.SIGKILL)

    await until(lambda: processes.process_ids.get("a:0", before["a:0"]) != before["a:0"])
    await until(lambda: sum("ready" in line for line in shown(processes)) == 3)

    assert any("ended with SIGKILL, next start in" in line for line in shown(processes))
    assert processes.process_ids["b:0"] == before["b:0"]


class Slow:
    """A process that takes a moment to stop."""

    pid = 1
    returncode: int | None = None

    def send_signal(self, _number: int) -> None:
        pass

    async def wait(self) -> int:
        await asyncio.sleep(0.1)
        self.returncode = 0
        return 0


async def test_one_that_ended_is_not_started_while_the_others_stop(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervised_processes, "RESTART_S", 0.02)
    lines: list[str] = []
    processes = SupervisedProcesses([Program("slow", "", ()), Program("crashes", "", ())], lines.append)
    launched: list[str] = []

    async def launch(child: Any) -> asyncio.Task[Any]:
        launched.append(child.program.name)
        child.booted.set()
        child.process = Slow() if child.program.name == "slow" else None
        child.watched = asyncio.create_task(asyncio.sleep(60 if child.process is not None else 0))
        watched: asyncio.Task[Any] = child.watched
        return watched

    monkeypatch.setattr(processes, "_launch", launch)
    await processes.start()
    await until(lambda: any("next start in" in line for line in lines))

    await processes.stop()

    assert launched == ["slow", "crashes"]


def test_the_programs_run_on_without_a_terminal(caplog: pytest.LogCaptureFixture):
    def closed(_line: str) -> None:
        raise BrokenPipeError("the terminal is closed")

    processes = SupervisedProcesses((), closed)

    processes._show("a line")
    processes._show("another")

    assert caplog.text.count("status lines cannot be printed any more: the terminal is closed") == 1


async def test_one_that_does_not_start_stops_all(modules: None):
    lines: list[str] = []
    programs = [Program("a:0", "meta_server", ("a",)), Program("b:0", "meta_failure", ())]
    processes = SupervisedProcesses(programs, lines.append)

    with pytest.raises(ConfigError, match=r"b:0 does not start: mqbroker: a\.properties:1: listenPort: not a port"):
        await processes.start()

    assert processes.process_ids == {}


async def test_children_end_with_a_killed_parent(modules: None, tmp_path: Path):
    parent = (
        "import asyncio, os, sys\n"
        "from rocketbroker.app.launch.supervised_processes import Program, SupervisedProcesses\n"
        "async def main():\n"
        "    processes = SupervisedProcesses([Program('a:0', 'meta_server', ('a',))], lambda _line: None)\n"
        "    await processes.start()\n"
        "    print(processes.process_ids['a:0'], flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", parent, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        child = int(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()

    await until(lambda: not Path(f"/proc/{child}").exists() or _is_zombie(child))


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].startswith("Z")
    except FileNotFoundError:
        return True


async def test_programs_get_variables_that_this_process_has_not(modules: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OWN", "1")
    shown: list[str] = []
    given = {"OWN": "2", "GIVEN": "3"}
    async with stopping(
        SupervisedProcesses([Program("a:0", "meta_environment", ())], shown.append, given)
    ) as processes:
        await processes.start()
        await until(lambda: "[a:0] OWN 1 GIVEN 3" in shown)
