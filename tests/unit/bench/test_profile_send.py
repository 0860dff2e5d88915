"""The send_profile sends what it says it sends, and its steps make up the whole."""

from pathlib import Path

import pytest

from bench.profiles import BOUNDS, SEND_STEPS, Burst, send_parts, send_profile, send_table
from bench.send_path import QUEUES, TOPIC, DroppingTransport, body_of, send_frame, send_path
from rocketbroker.codec.message.message_decoder import decode_messages
from tests.support.stores import fetch, pulled


async def test_the_steps_make_up_the_whole(tmp_path: Path):
    steps, middle = await send_profile(tmp_path, size=10, frames=64, bursts=2)

    assert list(steps) == list(middle) == [*SEND_STEPS, *BOUNDS]
    assert sum(steps[step] for step in SEND_STEPS) == pytest.approx(steps["whole"])
    assert steps["whole"] > steps["append"] > 0


async def test_a_burst_goes_through_the_path_whole_and_in_steps(tmp_path: Path):
    async with send_path(tmp_path) as path:
        reads = [[send_frame(number + k, b"body") for k in range(8)] for number in (1, 9)]
        Burst(path, reads).timings()  # makes the queues
        before = path.store.appender.put_count
        Burst(path, reads).timings()

        # Alone, whole, by the handler, to see the messages it makes, twice by the store.
        assert path.store.appender.put_count == before + 6 * 16
        ends = {path.store.queues.max_offset_in_queue(TOPIC, queue) for queue in range(QUEUES)}
        assert ends == {path.store.appender.put_count // QUEUES}
        messages = decode_messages(pulled(fetch(path.store, TOPIC, 3, 0)))
        assert {bytes(message.body) for message in messages} == {b"body"}
        assert len((await path.store.queries.query_message(TOPIC, "sender-3", 64, 0, 2**62)).records) == ends.pop() // 2


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
    timed = {
        "whole": 20.0, "frames": 2.0, "properties": 1.0, "handler": 12.0, "append": 4.0, "answer": 2.0,
        "stored": 7.0, "index": 1.0, "alone": 30.0,
    }  # fmt: skip

    steps = send_parts(timed)

    assert (steps["process"], steps["dispatch"], steps["rest"]) == (5.0, 3.0, 2.0)
    assert (steps["answered"], steps["stored"]) == (4.0, 8.0)
    assert "| append | 4.00 | 4.00 | 20% |" in "\n".join(send_table(steps, steps))
