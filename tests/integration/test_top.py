"""mqadmin top as a process, on terminals and without one."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.client import Message, Producer
from rocketbroker.testing import RocketMQServer
from tests.support.admin_schemas import checked_json
from tests.support.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-P", "-m", "rocketbroker.app.mqadmin.cli", "top"]
LIMIT_S = 60
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NAMESRV_ADDR": "", "TERM": "xterm-256color"}


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    """A broker with the topic Orders."""
    with RocketMQServer() as mq:
        mq.create_topic("Orders")
        yield mq.namesrv_addr


class Terminal:
    """A terminal with top on it; what it shows is kept as it was written."""

    def __init__(self, columns: int, lines: int, *options: str) -> None:
        self._ours, self._theirs = pty.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(self._theirs)
        environment = {key: value for key, value in ENVIRONMENT.items() if key not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            [*COMMAND, "-i", "0.5", *options], stdin=self._theirs, stdout=self._theirs, stderr=subprocess.PIPE,
            env=environment, start_new_session=True,
        )  # fmt: skip
        os.set_blocking(self._ours, False)
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """Wait until a text is shown that was not read before."""
        deadline = time.monotonic() + LIMIT_S
        new = ""
        while text not in new:
            assert time.monotonic() < deadline, self.shown[-2000:]
            assert self.process.poll() is None, self.process.communicate()
            try:
                new += re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", os.read(self._ours, 65536).decode(errors="replace"))
            except BlockingIOError:
                time.sleep(0.01)
        self.shown += new

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def end(self) -> tuple[int, str]:
        """Wait for the end of top; return its exit code and stderr."""
        _, error = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, error.decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        os.close(self._ours)
        os.close(self._theirs)

    def settings(self) -> list[object]:
        return termios.tcgetattr(self._theirs)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for each in opened:
        each.close()


@pytest.mark.parametrize("columns", [40, 100])
def test_keys_change_the_screen_and_q_leaves_the_terminal_as_it_was(
    columns: int, namesrv: str, terminals: list[Terminal]
):
    terminals.append(Terminal(columns, 20, "-n", namesrv))
    terminal = terminals[0]
    terminal.wait_for("broker-a:0")
    terminal.press("3")
    terminal.wait_for("Orders")
    terminal.press("\r")
    terminal.wait_for("QID")
    terminal.press("q")
    assert terminal.end() == (0, "")
    assert terminal.settings() == terminal.before


def test_ctrl_c_ends_it_without_a_word(namesrv: str, terminals: list[Terminal]):
    terminals.append(Terminal(80, 24, "-n", namesrv))
    terminal = terminals[0]
    terminal.wait_for("broker-a:0")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == (0, "")
    assert terminal.settings() == terminal.before


def test_without_a_terminal_one_snapshot_is_printed(namesrv: str):
    done = subprocess.run(
        [*COMMAND, "-n", namesrv], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=ENVIRONMENT,
        timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines() if line]
    assert [row[0] for row in rows if row[0].startswith("#")] == ["#Cluster", "#Group", "#Topic"]
    assert ["Orders", "0"] in [[row[0], row[2]] for row in rows if len(row) == 4]


def test_json_is_one_snapshot(namesrv: str):
    done = subprocess.run(
        [*COMMAND, "-n", namesrv, "--json"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=LIMIT_S,
        check=True,
    )
    data = checked_json("top", done.stdout)
    assert [row["broker"] for row in data["brokers"]] == ["broker-a"]
    assert [row["topic"] for row in data["topics"]] == ["Orders"]


def test_a_dead_name_server_is_an_error_before_the_screen(terminals: list[Terminal]):
    address = f"127.0.0.1:{free_ports()}"
    terminals.append(Terminal(80, 24, "-n", address))
    code, error = terminals[0].end()
    assert code == 1
    assert error.startswith("mqadmin: ")
    assert address in error


async def test_a_name_server_that_dies_leaves_the_last_figures(terminals: list[Terminal]):
    async with RocketMQServer() as mq:
        async with Producer("producers", mq.namesrv_addr) as producer:
            await producer.send(Message("Orders", b"body"))
        terminals.append(Terminal(100, 24, "-n", mq.namesrv_addr))
        terminal = terminals[0]
        await asyncio.to_thread(terminal.wait_for, "broker-a:0")
    await asyncio.to_thread(terminal.wait_for, "no new figures:")
    await asyncio.to_thread(terminal.wait_for, " s old")
    terminal.press("q")
    assert (await asyncio.to_thread(terminal.end))[0] == 0


@pytest.mark.long
def test_a_frozen_name_server_is_an_error_with_the_time_limit():
    with RocketMQServer() as mq:
        address = mq.namesrv_addr
        mq.freeze()
        done = subprocess.run(
            [*COMMAND, "-n", address, "--once"], capture_output=True, text=True, env=ENVIRONMENT, timeout=LIMIT_S,
            check=False,
        )  # fmt: skip
        mq.thaw()
    assert done.returncode == 1
    assert f"no answer from {address}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_reader_that_leaves_ends_it_quietly(namesrv: str):
    with subprocess.Popen(
        [*COMMAND, "-n", namesrv, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
