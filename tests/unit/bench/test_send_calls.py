"""Sends, batches and pulls make no more calls a message than they did: times depend on the machine, calls do not.

A change that needs more raises the bound here, and shows in docs/operations/performance.md what it costs.
"""

import gc
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import pytest

from bench.send_path import QUEUES, SendPath, batch_frame, pull_frame, send_frame, send_path

MESSAGES = 25
# Messages of a batch and of a pull, and batches of one read event.
EACH = 32
BATCHES = 7


def feed(path: SendPath, data: bytes) -> None:
    """Hand one read event to the connection, with as few calls as possible."""
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
    [(MESSAGES, 3.5, 18.4), (1, 38.8, 54.5)],
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


@pytest.mark.parametrize(
    ("together", "most_python", "most_c"),
    [(BATCHES, 0.9, 1.45), (1, 2.41, 3.33)],
    ids=["batches of one read event", "each batch alone"],
)
async def test_calls_a_message_of_a_batch(tmp_path: Path, together: int, most_python: float, most_c: float):
    frames = [batch_frame(number, EACH, b"body") for number in range(6 * BATCHES)]
    async with send_path(tmp_path) as path:
        for first in range(0, 5 * BATCHES, BATCHES):
            feed(path, b"".join(frames[first : first + BATCHES]))
        assert path.store.index_service is not None
        path.store.index_service.flush()
        measured = frames[-BATCHES:]
        events = [b"".join(measured[first : first + together]) for first in range(0, BATCHES, together)]

        python, c = calls(path, events)

        assert path.store.appender.put_count == 6 * BATCHES * EACH
    messages = BATCHES * EACH
    print(f"{python / messages:.2f} Python functions and {c / messages:.2f} C functions a message")
    assert python / messages <= most_python
    assert c / messages <= most_c


async def test_calls_a_pulled_message(tmp_path: Path):
    frames = [send_frame(number + 1, b"body") for number in range(EACH * QUEUES)]
    async with send_path(tmp_path) as path:
        for first in range(0, len(frames), EACH):
            feed(path, b"".join(frames[first : first + EACH]))
        event = b"".join(pull_frame(queue_id, 0, EACH) for queue_id in range(QUEUES))
        feed(path, event)
        taken = path.transport.taken

        python, c = calls(path, [event])

        assert path.transport.taken - taken > EACH * QUEUES * 100
    messages = EACH * QUEUES
    print(f"{python / messages:.2f} Python functions and {c / messages:.2f} C functions a message")
    assert python / messages <= 1.3
    assert c / messages <= 2.3
