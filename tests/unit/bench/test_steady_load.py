"""Answers are matched with their sends however they arrive; a refusal or a lost connection ends the load."""

import asyncio
import json
import struct
from typing import Any

import pytest

from bench.cleaning import SteadySender, latencies
from bench.harness import BenchError
from tests.support.raw_client import raw_frame


class Answers(asyncio.Transport):
    """Answers each request it is given through the protocol, as bytes in pieces of ``size``."""

    def __init__(self, sender: SteadySender, code: int = 0, size: int = 7) -> None:
        super().__init__()
        self._sender = sender
        self._code = code
        self._size = size
        self.topics: list[str] = []

    def write(self, data: Any) -> None:
        answers = b""
        while data:
            length, head = struct.unpack_from(">II", data)
            header = json.loads(data[8 : 8 + head])
            self.topics.append(header["extFields"]["b"])
            answers += raw_frame({"code": self._code, "flag": 1, "opaque": header["opaque"], "remark": "why"}, b"body")
            data = data[4 + length :]
        for start in range(0, len(answers), self._size):
            self._sender.data_received(answers[start : start + self._size])


def test_figures_are_of_all_sends():
    found = latencies([0.001] * 99 + [0.101])

    assert (found.sends, found.p50, found.p99, found.longest) == pytest.approx((100, 1.0, 2.0, 101.0))


async def test_each_send_has_its_answer():
    sender = SteadySender("T", 10, rate=10_000)
    transport = Answers(sender)
    sender.connection_made(transport)

    first = await sender.run(lambda: len(transport.topics) > 20)
    second = await sender.run(lambda: len(transport.topics) > 50)

    assert len(first) > 20
    assert len(first) + len(second) == len(sender.taken) == len(transport.topics)
    assert set(transport.topics) == {"T"}
    assert all(latency >= 0 for latency in first + second)


async def test_a_refusal_ends_the_load():
    sender = SteadySender("T", 10, rate=10_000)
    sender.connection_made(Answers(sender, code=14))

    with pytest.raises(BenchError, match="the broker answered 14: why"):
        await sender.run(lambda: False)


async def test_a_lost_connection_ends_the_load():
    sender = SteadySender("T", 10, rate=10_000)
    sender.connection_made(Answers(sender))
    sender.connection_lost(ConnectionResetError("gone"))

    with pytest.raises(BenchError, match="the broker closed the connection: gone"):
        await sender.run(lambda: False)
