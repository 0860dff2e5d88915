"""Frames of one connection, joined or handed over as they are."""

import asyncio
import socket
from unittest.mock import create_autospec

import pytest

from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.transport import frame_writer
from rocketbroker.transport.frame_writer import FrameWriter, SharedWriter
from rocketbroker.transport.remoting_client import RemotingClient
from rocketbroker.transport.remoting_server import RemotingServer
from tests.support.running import stopping
from tests.support.transports import ECHO, HOLDING, Handlers
from tests.support.waiting import until


class Recorder(asyncio.Transport):
    """Transport that keeps what each call wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.calls.append(("write", len(data)))

    def writelines(self, list_of_data: object) -> None:
        self.calls.append(("writelines", sum(map(len, list_of_data))))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("pauses", "sizes", "call"),
    [
        (True, [100], "write"),
        (True, [100, 200], "write"),
        (True, [100, 70_000], "writelines"),
        (False, [100, 70_000], "write"),
    ],
)
async def test_large_frames_are_joined_only_where_writelines_never_pauses(
    monkeypatch: pytest.MonkeyPatch, pauses: bool, sizes: list[int], call: str
):
    monkeypatch.setattr(frame_writer, "_WRITELINES_PAUSES", pauses)
    writer = FrameWriter(asyncio.get_running_loop())
    writer.transport = recorder = Recorder()

    writer.write([bytes(size) for size in sizes])

    assert recorder.calls == [(call, sum(sizes))]


async def test_a_second_thread_sends_between_frames_of_the_loop(server: RemotingServer, handlers: Handlers):
    address = f"127.0.0.1:{server.port}"
    async with stopping(RemotingClient()) as client:
        assert not client.send_from_thread(address, request(HOLDING))
        await client.invoke(address, request(ECHO))
        body = b"x" * 10_000

        def send() -> int:
            return sum(client.send_from_thread(address, request(HOLDING, None, body)) for _ in range(200))

        sending = asyncio.create_task(asyncio.to_thread(send))
        answers = [await client.invoke(address, request(ECHO, None, b"%d" % index)) for index in range(200)]
        sent = await sending
        assert [answer.body for answer in answers] == [b"%d" % index for index in range(200)]
        assert sent > 0
        await until(lambda: [each for each in handlers.seen if each[0] == HOLDING] == [(HOLDING, body)] * sent)


async def test_a_socket_that_is_closed_already_is_no_error():
    with socket.socket() as closed:
        pass
    transport = create_autospec(asyncio.Transport, instance=True)
    transport.is_closing.return_value = False
    transport.get_write_buffer_size.return_value = 0
    transport.get_extra_info.side_effect = {"socket": closed}.get
    writer = SharedWriter(asyncio.get_running_loop())
    writer.transport = transport
    assert not writer.write_from_thread(b"frame")


async def test_nothing_follows_a_frame_that_left_in_part():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        transport = create_autospec(asyncio.Transport, instance=True)
        transport.is_closing.return_value = False
        transport.get_write_buffer_size.return_value = 0
        transport.get_extra_info.side_effect = {"socket": ours}.get
        writer = SharedWriter(asyncio.get_running_loop())
        writer.transport = transport
        assert not writer.write_from_thread(bytes(10_000_000))
        with pytest.raises(BrokenPipeError):
            ours.send(b"next")
