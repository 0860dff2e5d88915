"""Bytes of a master are taken in the order of their arrival, and no more are kept than asked for."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rocketbroker.codec.ha_frames import TRANSFER_HEADER
from rocketbroker.common.errors import RemotingSendError, RemotingTimeoutError
from rocketbroker.ha.master_link import MasterLink
from tests.support.ports import LOOPBACK
from tests.support.waiting import until

PIECE = 1 << 20
DATA = b"".join(TRANSFER_HEADER.pack(begin, PIECE) + bytes([begin >> 20]) * PIECE for begin in range(0, 8 << 20, PIECE))


class Master:
    """Sends what the test wants to its slave."""

    def __init__(self) -> None:
        self.address = ""
        self.writer: asyncio.StreamWriter
        self.reports = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.reports = await reader.read(8)
        await reader.read()
        writer.close()


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    found = Master()
    server = await asyncio.start_server(found.serve, LOOPBACK, 0)
    found.address = f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    yield found
    server.close()


async def linked(master: Master, silence_s: float = 60) -> MasterLink:
    link = await MasterLink.connect(master.address, silence_s)
    link.report(5)
    await until(lambda: master.reports == bytes([0, 0, 0, 0, 0, 0, 0, 5]))
    return link


@pytest.mark.parametrize("most", [1, 300_000, 1 << 30])
async def test_bytes_come_in_order_and_bounded(master: Master, most: int):
    link, got, sizes = await linked(master), bytearray(), list[int]()
    master.writer.write(DATA)
    while len(got) < 8 * PIECE:
        parts = await link.read(most)
        assert all(part.offset + len(part.data) <= 8 * PIECE for part in parts)
        sizes.append(sum(len(part.data) for part in parts))
        for part in parts:
            assert part.offset == len(got)
            got += part.data
        for _ in range(3):
            await asyncio.sleep(0)

    assert got == b"".join(bytes([number]) * PIECE for number in range(8))
    assert max(sizes[1:]) <= min(max(most, 128 << 10), 2 << 20)
    link.close()


async def test_what_came_before_the_end_is_read_first(master: Master):
    link = await linked(master)
    master.writer.write(DATA[: TRANSFER_HEADER.size + 10])
    master.writer.close()
    await until(lambda: link._lost)

    assert [bytes(part.data) for part in await link.read(100)] == [bytes(10)]
    with pytest.raises(RemotingSendError, match="has closed the connection; its log says why"):
        await link.read(100)
    link.report(9)
    link.close()


async def test_a_silent_master_is_an_error(master: Master):
    link = await linked(master, 0.05)
    with pytest.raises(RemotingTimeoutError, match=r"silent for 0\.05 s"):
        await link.read(100)
    link.close()
