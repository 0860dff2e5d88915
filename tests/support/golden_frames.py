"""The frames recorded between Apache RocketMQ 5.5.0 and its clients, in tests/golden/frames.

``session.bin.gz`` holds them back to back, ``session.jsonl.gz`` says for each where it is and who sent it: ``who`` is
the client of the connection (Java with JSON or binary headers, mqadmin, brokers, and the C++, Go and Node clients).
"""

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rocketbroker.codec.remoting.frame import decode_frame
from rocketbroker.codec.remoting.remoting_command import Command

GOLDEN = Path(__file__).parent.parent / "golden" / "frames"
FOREIGN = ("cpp-rocketmq-0.4.4", "go-client-2.1.2", "node-ali-ons-3.12.0")


class GoldenFrame(NamedTuple):
    """One frame, its length field included, and what the recorder knew of it."""

    number: int
    sender: str
    client: str
    conversation: tuple[int, str, int]
    code: int
    opaque: int
    flag: int
    binary: bool
    data: bytes

    def command(self) -> Command:
        """Return the frame decoded without knowing its code."""
        return decode_frame(memoryview(self.data)[4:])

    def header(self) -> bytes:
        """Return the bytes of its header."""
        return self.data[8 : 8 + int.from_bytes(self.data[5:8], "big")]

    def body(self) -> bytes:
        """Return the bytes after its header."""
        return self.data[8 + len(self.header()) :]


class Exchange(NamedTuple):
    """A request and its answer, if it got one."""

    request: GoldenFrame
    response: GoldenFrame | None


@cache
def frames() -> tuple[GoldenFrame, ...]:
    """Return all frames in the order they were sent."""
    data = gzip.decompress((GOLDEN / "session.bin.gz").read_bytes())
    lines = gzip.decompress((GOLDEN / "session.jsonl.gz").read_bytes()).splitlines()
    return tuple(_frame(json.loads(line), data) for line in lines)


def _frame(line: dict[str, Any], data: bytes) -> GoldenFrame:
    binary = line["ser"] == "ROCKETMQ"
    from_client = line["dir"] == "c2s"
    server = "server-binary" if binary else "server-json"
    # A request goes one way and its answer the other; both directions count opaques of their own.
    asker = line["dir"] if not line["flag"] & 1 else ("s2c" if from_client else "c2s")
    return GoldenFrame(
        line["n"],
        line["who"] if from_client else server,
        line["who"],
        (line["conn"], asker, line["opaque"]),
        line["code"],
        line["opaque"],
        line["flag"],
        binary,
        data[line["off"] : line["off"] + line["len"]],
    )


@cache
def exchanges() -> tuple[Exchange, ...]:
    """Return all requests, each with its answer."""
    return tuple(_paired())


def _paired() -> Iterator[Exchange]:
    answers: dict[tuple[int, str, int], list[GoldenFrame]] = {}
    for frame in frames():
        if frame.flag & 1:
            answers.setdefault(frame.conversation, []).append(frame)
    for frame in frames():
        if not frame.flag & 1:
            waiting = answers.get(frame.conversation, [])
            oneway = frame.flag & 2
            yield Exchange(frame, waiting.pop(0) if waiting and not oneway else None)


def requests_of(code: int) -> list[GoldenFrame]:
    """Return the requests with this code; there is one at least, so that no test of them passes for want of any."""
    found = [exchange.request for exchange in exchanges() if exchange.request.code == code]
    assert found, f"no request {code} was recorded"
    return found


def answers_to(code: int) -> list[Exchange]:
    """Return the answered requests with this code, one at least."""
    found = [exchange for exchange in exchanges() if exchange.request.code == code and exchange.response]
    assert found, f"no answered request {code} was recorded"
    return found


def samples() -> list[GoldenFrame]:
    """Return one frame of each kind: by sender, code, whether it answers, and encoding."""
    found: dict[tuple[str, int, int, bool], GoldenFrame] = {}
    for frame in frames():
        found.setdefault((frame.sender, frame.code, frame.flag, frame.binary), frame)
    return list(found.values())
