"""Consumers that ask for much and take nothing: what is kept for them is bounded, and others are served."""

import asyncio
import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings
from rocketbroker.codec.remoting.headers.message import (
    FLAG_SUBSCRIPTION,
    FLAG_SUSPEND,
    PullMessageRequestHeader,
    SendMessageRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config import TransportConfig
from rocketbroker.common.config.hosts import LOOPBACK
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.transports import frame
from tests.support.waiting import until

pytestmark = [
    pytest.mark.proves(
        "Consumers",
        "flow control by the broker: pulls over a limit are rejected and tried again; consumers that take "
        "nothing cost bounded memory",
    ),
]

HIGH_WATER = 64 * 1024
# maxTransferBytesOnMessageInMemory, and what is handed over at once.
LARGEST_ANSWER = 256 * 1024
HANDED_OVER = 256 * 1024
# Most that may wait for one consumer in this process: nothing more is answered once it is over the mark.
MOST_WAITING = HIGH_WATER + HANDED_OVER + LARGEST_ANSWER
# A connection's own objects, the pulls that wait for their turn included.
OVERHEAD = 64 * 1024
MESSAGES, BODY = 32, 7_900
HELD_PULLS, PULLS = 10, 40
READ_QUEUE, HELD_QUEUE = 0, 1


def send_command(queue_id: int, body: bytes) -> Command:
    header = SendMessageRequestHeader("PG", "T", "TBW102", 4, queue_id, 0, 1_000, 0, "")
    return request(RequestCode.SEND_MESSAGE, header, body)


def pull_header(queue_id: int) -> PullMessageRequestHeader:
    flags = FLAG_SUBSCRIPTION | FLAG_SUSPEND
    return PullMessageRequestHeader("G", "T", queue_id, 0, MESSAGES, flags, 0, 60_000, 0, "*", "TAG")


def anonymous_bytes() -> int:
    """Memory of this process that is no file's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


async def stalled_consumer(port: int) -> socket.socket:
    """A connection that has asked for 10 MB and for what is to come, and will never read."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await loop.sock_connect(sock, (LOOPBACK, port))
    queues = [HELD_QUEUE] * HELD_PULLS + [READ_QUEUE] * PULLS
    await loop.sock_sendall(
        sock,
        b"".join(
            frame(RequestCode.PULL_MESSAGE, b"", number, pull_header(queue)) for number, queue in enumerate(queues)
        ),
    )
    return sock


async def stall(count: int, store: Path) -> None:
    settings = broker_settings(0, store, "")
    transport = TransportConfig(
        listen_port=0,
        bind_address=LOOPBACK,
        write_buffer_high_water_mark=HIGH_WATER,
        server_socket_snd_buf_size=HIGH_WATER,  # or the kernel holds up to 4 MiB for each
        max_held_bytes=2 * count * MOST_WAITING,  # below it no connection is dropped
    )
    broker = BrokerController.bind(replace(settings, transport=transport))
    client = RemotingClient()
    await broker.start()
    try:
        await stall_all(count, broker, client)
    finally:
        await client.stop()
        await broker.stop()


async def stall_all(count: int, broker: BrokerController, client: RemotingClient) -> None:
    address = f"{LOOPBACK}:{broker.port}"
    for _ in range(MESSAGES):
        assert (await client.invoke(address, send_command(READ_QUEUE, bytes(BODY)), 60)).code == 0
    connections = broker._server.connections
    (served,) = connections
    before = anonymous_bytes()

    def check() -> None:
        waiting = [one._writer.unsent_bytes for one in connections]
        assert max(waiting) <= MOST_WAITING
        assert anonymous_bytes() - before < count * (MOST_WAITING + OVERHEAD)

    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(await stalled_consumer(broker.port))
        await until(lambda: sum(one.is_behind for one in connections) == count)
        assert broker.hold_service.held == count * HELD_PULLS
        check()

        sent = await client.invoke(address, send_command(HELD_QUEUE, bytes(LARGEST_ANSWER - 1000)), 60)
        pulled = await client.invoke(address, request(RequestCode.PULL_MESSAGE, pull_header(HELD_QUEUE)), 60)

        assert (sent.code, pulled.code) == (0, 0)
        assert len(pulled.body) > LARGEST_ANSWER - 1000
        await until(lambda: not broker.hold_service.held)
        assert sum(one.is_behind for one in connections) == count
        check()
        read = await client.invoke(address, request(RequestCode.PULL_MESSAGE, pull_header(READ_QUEUE)), 60)
        assert read.body.count(bytes(BODY)) == MESSAGES
    await until(lambda: connections == {served})


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def test_memory_is_bounded_and_others_are_served(
    tmp_path: Path, count: int, loop: Callable[[], asyncio.AbstractEventLoop]
):
    wanted = 2 * count + 200  # both ends are here
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} open files, the limit is {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(stall(count, tmp_path))
