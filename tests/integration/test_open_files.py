"""Servers under a low limit of open files: topics, restarts, and idle connections beside sends."""

import asyncio
import contextlib
import socket
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.remoting.headers.message import (
    FLAG_SUBSCRIPTION,
    PullMessageRequestHeader,
    SendMessageRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.our_servers import BOOT_LIMIT, BOOTED, OurServer, OurServers
from tests.support.ports import LOOPBACK
from tests.support.running import stopping
from tests.support.waiting import until

QUEUES = 8
LOG_FILE = 1 << 20


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    async with stopping(RemotingClient()) as made:
        yield made


def limited(files: int) -> list[str]:
    """Prefix for the command line of a process that may open so many files."""
    return ["/bin/sh", "-c", f'ulimit -n {files} && exec "$@"', "sh"]


def broker(servers: OurServers, files: int, store: Path, **settings: str | int) -> OurServer:
    given: dict[str, str | int] = {"mappedFileSizeCommitLog": LOG_FILE, "mappedFileSizeConsumeQueue": 200, **settings}
    server = servers.launch_broker("", store, given, runner=limited(files))
    server.wait_for(BOOTED, BOOT_LIMIT)
    return server


def send_command(topic: str, queue_id: int, body: bytes) -> Command:
    header = SendMessageRequestHeader("PG", topic, "TBW102", QUEUES, queue_id, 0, 1_000, 0, "")
    return request(RequestCode.SEND_MESSAGE, header, body)


def pull_command(topic: str, queue_id: int, offset: int) -> Command:
    header = PullMessageRequestHeader("G", topic, queue_id, offset, 1, FLAG_SUBSCRIPTION, 0, 0, 0, "*", "TAG")
    return request(RequestCode.PULL_MESSAGE, header)


def descriptors(server: OurServer) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


async def send_to_all(client: RemotingClient, address: str, topics: int) -> None:
    for number in range(topics):
        for queue_id in range(QUEUES):
            answer = await client.invoke(address, send_command(f"T{number}", queue_id, b"%d" % number), 60)
            assert answer.code == 0, answer.remark


async def check_all(client: RemotingClient, address: str, topics: int, times: int) -> None:
    for number in range(topics):
        for queue_id in range(QUEUES):
            for offset in range(times):
                pulled = await client.invoke(address, pull_command(f"T{number}", queue_id, offset), 60)
                assert pulled.code == 0, pulled.remark
                assert [one.body for one in decode_messages(pulled.body)] == [b"%d" % number]


async def outlive(servers: OurServers, client: RemotingClient, tmp_path: Path, files: int, topics: int) -> OurServer:
    store = tmp_path / "store"
    first = broker(servers, files, store)
    await send_to_all(client, first.address, topics)
    await check_all(client, first.address, topics, 1)
    assert descriptors(first) < 60, "no queue costs one"
    assert first.stop() == 0
    await client.stop()
    again = broker(servers, files, store)
    async with stopping(RemotingClient()) as other:
        await send_to_all(other, again.address, topics)
        await check_all(other, again.address, topics, 2)
    assert servers.errors() == []
    return again


@pytest.mark.long
async def test_queues_are_not_bounded_by_open_files(servers: OurServers, client: RemotingClient, tmp_path: Path):
    server = await outlive(servers, client, tmp_path, 128, 40)
    assert server.stop() == 0

    assert set(modes(tmp_path / "store")) == {"d750", "-640"}


def modes(folder: Path) -> Iterator[str]:
    """Kinds and modes of all that is in a folder, and of itself."""
    for path in [folder, *folder.rglob("*")]:
        mode = path.stat().st_mode
        yield f"{stat.filemode(mode)[0]}{stat.S_IMODE(mode):o}"


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_501_topics_under_1024_open_files(servers: OurServers, client: RemotingClient, tmp_path: Path):
    await outlive(servers, client, tmp_path, 1024, 501)


async def idle(stack: contextlib.ExitStack, port: int, count: int) -> list[socket.socket]:
    """Connections that send nothing; those that were turned away are among them."""
    loop, found = asyncio.get_running_loop(), []
    for _ in range(count):
        sock = stack.enter_context(socket.socket())
        sock.setblocking(False)
        await loop.sock_connect(sock, (LOOPBACK, port))
        found.append(sock)
    return found


def is_closed(sock: socket.socket) -> bool:
    """Return true if the peer closed a connection on which it sends nothing."""
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def keep_sending(servers: OurServers, client: RemotingClient, store: Path, files: int, count: int) -> None:
    """Sends, new topics, new files of log, index and queues, and a restart, beside idle connections."""
    server = broker(servers, files, store, maxIndexNum=400, maxHashSlotNum=100)
    sent = await client.invoke(server.address, send_command("T", 0, b"first"), 60)
    assert sent.code == 0
    with contextlib.ExitStack() as stack:
        connections = await idle(stack, server.port, count)
        await until(lambda: " rejected: " in server.text())
        assert "so that the store keeps its reserve (ulimit -n)" in server.text()
        assert descriptors(server) < files
        for number in range(60):
            answer = await client.invoke(server.address, send_command(f"T{number}", 0, bytes(90_000)), 60)
            assert answer.code == 0, answer.remark
        assert len(list((store / "commitlog").iterdir())) > 5
        await until(lambda: sum(map(is_closed, connections)) >= count - files)
        assert not is_closed(connections[0])
    await until(lambda: descriptors(server) < 80)
    async with stopping(RemotingClient()) as other:
        assert (await other.invoke(server.address, send_command("T", 0, b"other"), 60)).code == 0
    assert servers.errors() == []


async def test_idle_connections_leave_sends_their_descriptors(
    servers: OurServers, client: RemotingClient, tmp_path: Path
):
    await keep_sending(servers, client, tmp_path / "store", 128, 200)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_1000_idle_connections_under_1024_open_files(servers: OurServers, client: RemotingClient, tmp_path: Path):
    await keep_sending(servers, client, tmp_path / "store", 1024, 1100)


def test_a_store_that_lacks_descriptors_to_open_reports_it(servers: OurServers, tmp_path: Path):
    store = tmp_path / "store"
    for number in range(80):
        path = store / "commitlog" / f"{number * LOG_FILE:020d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        with path.open("r+b") as file:
            file.truncate(LOG_FILE)
    server = servers.launch_broker("", store, {"mappedFileSizeCommitLog": LOG_FILE}, runner=limited(64))

    with contextlib.suppress(subprocess.TimeoutExpired):
        server.process.wait(100)

    assert server.process.returncode == 1
    assert "Traceback" not in server.text()
    assert "Too many open files: this process may open 64 (ulimit -n); raise the limit" in server.lines()[-1]
