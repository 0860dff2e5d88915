"""The send path makes no more calls a message than it did: times depend on the machine, calls do not.

A change that needs more raises the bound here, and shows in docs/operations/performance.md what it costs.
"""

import gc
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import pytest

from bench.send_path import SendPath, send_frame, send_path

MESSAGES = 25


def feed(path: SendPath, data: bytes) -> None:
    """Hand one read event to the connection."""
    path.connection.get_buffer(-1)[: len(data)] = data
    path.connection.buffer_updated(len(data))


def calls(path: SendPath, events: Sequence[bytes]) -> tuple[int, int]:
    """Return the calls of Python functions, and of C functions, that handling some read events takes."""
    counts: Counter[str] = Counter()

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        counts[event] += 1

    gc.disable()
    sys.setprofile(count)
    try:
        for data in events:
            feed(path, data)
    finally:
        sys.setprofile(None)
        gc.enable()
    return counts["call"], counts["c_call"]


@pytest.mark.parametrize(
    ("together", "most_python", "most_c"),
    [(MESSAGES, 5.1, 20.6), (1, 53.0, 58.5)],
    ids=["sends of one read event", "each send alone"],
)
async def test_calls_a_message(tmp_path: Path, together: int, most_python: float, most_c: float):
    frames = [send_frame(number + 1, b"body") for number in range(8 * MESSAGES)]
    async with send_path(tmp_path) as path:
        # Queues get room, and the connection its template.
        for first in range(0, 6 * MESSAGES, MESSAGES):
            feed(path, b"".join(frames[first : first + MESSAGES]))
        measured = frames[-MESSAGES:]
        events = [b"".join(measured[first : first + together]) for first in range(0, MESSAGES, together)]

        python, c = calls(path, events)

    print(f"{python / MESSAGES:.1f} Python functions and {c / MESSAGES:.1f} C functions a message")
    assert python / MESSAGES <= most_python
    assert c / MESSAGES <= most_c
