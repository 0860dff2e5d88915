"""Messages to systemd: what is sent, when, and to whom."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.common.service_manager import ServiceManager


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.settimeout(60)
        link.bind(str(tmp_path / "notify"))
        yield link


def environment(systemd: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": systemd.getsockname(), **more}


def received(systemd: socket.socket) -> list[str]:
    systemd.setblocking(False)
    found = []
    while True:
        try:
            found.append(systemd.recv(4096).decode())
        except BlockingIOError:
            return found


async def test_a_start_and_a_stop_are_reported(systemd: socket.socket):
    manager = ServiceManager(environment(systemd))

    manager.ready("serving")
    manager.stopping("stopping")

    assert received(systemd) == ["READY=1\nSTATUS=serving", "STOPPING=1\nSTATUS=stopping"]


async def test_an_address_may_be_abstract():
    name = f"rocketbroker-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.bind(f"\0{name}")

        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).ready("serving")

        assert received(link) == ["READY=1\nSTATUS=serving"]


async def test_the_watchdog_is_fed_until_the_stop(systemd: socket.socket):
    manager = ServiceManager(environment(systemd, WATCHDOG_USEC="20000", WATCHDOG_PID=str(os.getpid())))
    manager.ready("serving")
    loop = asyncio.get_running_loop()

    lines = [await loop.run_in_executor(None, systemd.recv, 4096) for _ in range(4)]
    manager.stopping("stopping")

    assert lines[1:] == [b"WATCHDOG=1"] * 3
    assert received(systemd)[-1].startswith("STOPPING=1")
    assert manager._timer is None


@pytest.mark.parametrize("more", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"}])
async def test_a_watchdog_of_nobody_or_of_another_process_is_not_fed(systemd: socket.socket, more: dict[str, str]):
    manager = ServiceManager(environment(systemd, **more))

    manager.ready("serving")

    assert manager._timer is None
    assert len(received(systemd)) == 1


async def test_without_systemd_nothing_is_sent(caplog: pytest.LogCaptureFixture):
    manager = ServiceManager({"WATCHDOG_USEC": "20000"})

    manager.ready("serving")
    manager.stopping("stopping")

    assert manager._timer is None
    assert caplog.text == ""


async def test_a_socket_that_is_gone_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")})

    manager.ready("serving")
    manager.stopping("stopping")

    assert len(caplog.records) == 1
    assert "systemd: READY=1 was not taken by NOTIFY_SOCKET=" in caplog.text
