"""Sends at a steady rate, independent of answers, so that a stall shows in every send that it delays."""

import asyncio
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter

from bench.raw_load import LoadError, frame
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode

_TICK_S = 0.002
_ANSWER_LIMIT = 30  # seconds
_QUEUES = 4
_LENGTH = 4
_HEAD = 8


@dataclass(frozen=True, slots=True)
class Latencies:
    """Number of sends in a period, and their latencies in ms."""

    sends: int
    p50: float
    p99: float
    longest: float

    def __str__(self) -> str:
        return f"{self.sends:,} sends, p50 {self.p50:.2f} ms, p99 {self.p99:.2f} ms, longest {self.longest:.2f} ms"


def latencies(seconds: Sequence[float]) -> Latencies:
    """Return the figures of at least two sends, given in seconds."""
    p99 = quantiles(seconds, n=100, method="inclusive")[98]
    return Latencies(len(seconds), median(seconds) * 1000, p99 * 1000, max(seconds) * 1000)


class SteadySender(asyncio.Protocol):
    """Sender to one topic, which the first message creates.

    Args:
        topic: the topic.
        size: bytes of each body.
        rate: messages a second.

    Attributes:
        taken: send time and latency of each message, in seconds.
    """

    def __init__(self, topic: str, size: int, rate: int) -> None:
        self._topic = topic
        self._body = b"x" * size
        self._rate = rate
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._sent_at: dict[int, float] = {}
        self._next = 0
        self._error = ""
        self.taken: list[tuple[float, float]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the lost connection as an error."""
        self._error = self._error or f"the broker closed the connection: {exc}"

    def data_received(self, data: bytes) -> None:
        """Process the received answers."""
        now = perf_counter()
        received = self._received + data
        position = 0
        while len(received) - position >= _HEAD:
            length, head = struct.unpack_from(">II", received, position)
            if len(received) - position < _LENGTH + length:
                break
            self._take(received[position + _HEAD : position + _HEAD + (head & 0xFFFFFF)], now)
            position += _LENGTH + length
        self._received = received[position:]

    def _take(self, header: bytes, now: float) -> None:
        answer = json.loads(header)
        sent_at = self._sent_at.pop(answer["opaque"])
        if answer["code"] != ResponseCode.SUCCESS:
            self._error = self._error or f"the broker answered {answer['code']}: {answer.get('remark')}"
        self.taken.append((sent_at, now - sent_at))

    async def run(self, until: Callable[[], bool]) -> list[float]:
        """Send until a condition holds, wait for the answers and return their latencies in seconds.

        Raises:
            LoadError: a message was rejected, or not answered within 30 s.
        """
        first, begun, done = self._next, perf_counter(), len(self.taken)
        while not until() and not self._error:
            await asyncio.sleep(_TICK_S)
            due = first + int((perf_counter() - begun) * self._rate)
            self._send(due - self._next)
        deadline = perf_counter() + _ANSWER_LIMIT
        while self._sent_at and not self._error:
            if perf_counter() > deadline:
                self._error = f"{len(self._sent_at)} sends were not answered within {_ANSWER_LIMIT} s"
            await asyncio.sleep(_TICK_S)
        if self._error:
            raise LoadError(self._error)
        return [latency for _, latency in self.taken[done:]]

    def _send(self, count: int) -> None:
        numbers = range(self._next, self._next + count)
        if not numbers:
            return
        assert self._transport is not None
        data = b"".join(map(self._frame, numbers))
        self._next += count
        self._sent_at.update(dict.fromkeys(numbers, perf_counter()))
        self._transport.write(data)

    def _frame(self, number: int) -> bytes:
        fields = {
            "a": "bench_producer", "b": self._topic, "c": "TBW102", "d": _QUEUES, "e": number % _QUEUES, "f": 0,
            "g": 0, "h": 0, "i": "", "j": 0, "k": "false", "m": "false", "n": "broker-a",
        }  # fmt: skip
        return frame(RequestCode.SEND_MESSAGE_V2, fields, number, self._body)
