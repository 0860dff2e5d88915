"""The profile sends what it says it sends, and its steps make up the whole."""

from pathlib import Path

import pytest

from bench.burst import Burst
from bench.profile_send import STEPS, parted, profile, table
from bench.send_path import QUEUES, TOPIC, DroppingTransport, body_of, send_frame, send_path
from rocketbroker.codec.message.message_decoder import decode_messages
from tests.support.stores import fetch, pulled


async def test_the_steps_make_up_the_whole(tmp_path: Path):
    steps = await profile(tmp_path, size=10, frames=64, bursts=2)

    assert list(steps) == [*STEPS, "whole"]
    assert sum(steps[step] for step in STEPS) == pytest.approx(steps["whole"])
    assert steps["whole"] > steps["append"] > 0


async def test_a_burst_goes_through_the_path_whole_and_in_steps(tmp_path: Path):
    async with send_path(tmp_path) as path:
        reads = [[send_frame(number + k, b"body") for k in range(4)] for number in (0, 4)]
        Burst(path, reads).timings()

        # Once whole, once by the processor alone, once to see the messages it makes, twice by the store alone.
        assert path.store.appender.put_count == 5 * 8
        assert [path.store.queues.max_offset_in_queue(TOPIC, queue) for queue in range(QUEUES)] == [5] * QUEUES
        messages = decode_messages(pulled(fetch(path.store, TOPIC, 3, 0)))
        assert [bytes(message.body) for message in messages] == [b"body"] * 5
        assert len((await path.store.queries.query_message(TOPIC, "sender-3", 32, 0, 2**62)).records) == 5


async def test_each_request_is_answered(tmp_path: Path):
    async with send_path(tmp_path) as path:
        transport = DroppingTransport()
        path.connection.connection_made(transport)
        frame = send_frame(1, b"body")
        path.connection.get_buffer(-1)[: len(frame)] = frame
        path.connection.buffer_updated(len(frame))

        assert transport.taken > 100


def test_a_frame_is_parted():
    assert bytes(body_of(send_frame(1, b"the body"))) == b"the body"


def test_no_step_is_counted_twice():
    least = {
        "whole": 20.0, "transport": 2.0, "decode": 1.0, "processor": 12.0, "route": 1.0, "append": 4.0, "answer": 2.0,
        "stored": 7.0, "index": 1.0,
    }  # fmt: skip

    steps = parted(least)

    assert (steps["process"], steps["dispatch"], steps["rest"]) == (5.0, 3.0, 1.0)
    assert "| append | 4.00 | 20% |" in "\n".join(table(steps))
