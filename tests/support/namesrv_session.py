"""The conversations with the name server in tests/golden/frames, recorded from Apache RocketMQ 5.5.0.

Session 1 used JSON headers; in session 2 the name server was started again, over the same kvConfig.json, with
``rocketmq.serialize.type=ROCKETMQ``.
"""

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rocketbroker.codec.remoting.frame import decode_frame, split_frame
from rocketbroker.codec.remoting.handler import Answer, Route
from rocketbroker.codec.remoting.remoting_command import Command

FRAMES = Path(__file__).parent.parent / "golden" / "frames"
LINK = "ns"


@dataclass(frozen=True)
class RecordedFrame:
    """One frame, its length field included; ``number`` is its place in the recording."""

    number: int
    session: int
    connection: int
    from_client: bool
    sender: str
    scenario: str
    data: bytes

    @property
    def command(self) -> Command:
        return decode_frame(memoryview(self.data)[4:])


@cache
def recorded_frames() -> list[RecordedFrame]:
    """Return all frames to and from the name server, in the order of the recording."""
    everything = gzip.decompress((FRAMES / "session.bin.gz").read_bytes())
    lines = gzip.decompress((FRAMES / "session.jsonl.gz").read_bytes()).splitlines()
    return [_frame(row, everything) for row in map(json.loads, lines) if row["map"] == LINK]


def _frame(row: dict[str, Any], everything: bytes) -> RecordedFrame:
    data = everything[row["off"] : row["off"] + row["len"]]
    from_client = row["dir"] == "c2s"
    return RecordedFrame(row["n"], row["session"], row["conn"], from_client, row["who"], row["label"], data)


@cache
def recorded_requests(code: int) -> list[RecordedFrame]:
    """Return the requests of one code."""
    return [frame for frame in recorded_frames() if frame.from_client and frame.command.code == code]


def recorded_answer(request: RecordedFrame) -> RecordedFrame:
    """Return the answer to a recorded request."""
    opaque = request.command.opaque
    for frame in recorded_frames():
        same = frame.connection == request.connection and frame.number > request.number and not frame.from_client
        if same and frame.command.opaque == opaque:
            return frame
    raise LookupError(f"frame {request.number} was not answered")


def feed(route: Route, frame: bytes, connection: Any) -> Answer:
    """Handle a whole frame as a connection would: decode by the route, hand over the body."""
    serialize_type, header, body = split_frame(memoryview(frame)[4:])
    command = route.decode(serialize_type, header)
    command.body = bytes(body) if route.runs_later else body
    return route.process(connection, command)
