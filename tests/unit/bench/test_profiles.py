"""The profiles send what they say they send, and their steps make up the whole."""

from pathlib import Path

import pytest

from bench.profiles import (
    BATCH_STEPS,
    SEND_BOUNDS,
    SEND_STEPS,
    batch_parts,
    batch_profile,
    batch_timings,
    send_parts,
    send_profile,
    send_timings,
)
from bench.send_path import QUEUES, TOPIC, USER, batch_frame, body_of, send_frame, send_path
from rocketbroker.codec.message.message_batch import split_batch
from rocketbroker.codec.message.message_decoder import decode_messages
from tests.support.stores import fetch, pulled


async def test_the_steps_of_a_send_make_up_the_whole(tmp_path: Path):
    steps, middle = await send_profile(tmp_path, size=10, frames=64, bursts=2)

    assert list(steps) == list(middle) == [*SEND_STEPS, *SEND_BOUNDS]
    assert sum(steps[step] for step in SEND_STEPS) == pytest.approx(steps["whole"])
    assert steps["whole"] > steps["append"] > 0


async def test_a_burst_of_sends_goes_through_the_path_whole_and_in_steps(tmp_path: Path):
    async with send_path(tmp_path) as path:
        reads, signed = (
            [[send_frame(number + k, b"body", signer) for k in range(8)] for number in (1, 9)]
            for signer in (None, USER)
        )
        send_timings(path, reads, signed)  # makes the queues
        before = path.store.appender.put_count
        send_timings(path, reads, signed)

        # Alone and whole, both unsigned and signed, by the handler, to see the messages it makes, twice by the store.
        assert path.store.appender.put_count == before + 8 * 16
        ends = {path.store.queues.max_offset_in_queue(TOPIC, queue) for queue in range(QUEUES)}
        assert ends == {path.store.appender.put_count // QUEUES}
        messages = decode_messages(pulled(fetch(path.store, TOPIC, 3, 0)))
        assert {bytes(message.body) for message in messages} == {b"body"}
        assert len((await path.store.queries.query_message(TOPIC, "sender-3", 64, 0, 2**62)).records) == ends.pop() // 2


async def test_each_request_is_answered(tmp_path: Path):
    async with send_path(tmp_path) as path:
        frame = send_frame(1, b"body")
        path.connection.get_buffer(-1)[: len(frame)] = frame
        path.connection.buffer_updated(len(frame))

        assert path.transport.taken > 100


def test_no_step_of_a_send_is_counted_twice():
    timed = {
        "whole": 20.0, "frames": 2.0, "properties": 1.0, "handler": 12.0, "append": 4.0, "answer": 2.0,
        "stored": 7.0, "index": 1.0, "alone": 30.0, "signed whole": 23.0, "signed alone": 36.0,
    }  # fmt: skip

    steps = send_parts(timed)

    assert (steps["process"], steps["dispatch"], steps["rest"]) == (5.0, 3.0, 2.0)
    assert (steps["answered"], steps["stored"]) == (4.0, 8.0)


async def test_the_steps_of_a_batch_make_up_the_whole(tmp_path: Path):
    steps, together, of_pull = await batch_profile(tmp_path, count=5, size=10, bursts=2)

    assert list(steps) == [*BATCH_STEPS, "whole"]
    assert sum(steps[step] for step in BATCH_STEPS) == pytest.approx(steps["whole"])
    assert together > 0
    assert of_pull > 0


async def test_a_burst_stores_its_batches_alone_and_by_the_processor(tmp_path: Path):
    async with send_path(tmp_path) as path:
        batch_timings(path, [batch_frame(number, 3, b"body") for number in range(QUEUES)], 3)

        assert path.store.appender.put_count == 2 * 3 * QUEUES
        assert path.store.queues.max_offset_in_queue(TOPIC, 1) == 3
        assert path.store.index_service is not None
        assert path.store.index_service.waiting == 0


def test_a_frame_holds_the_messages_of_a_batch():
    parts = split_batch(body_of(batch_frame(0, 3, b"the body")))

    assert list(parts.bodies) == [b"the body"] * 3
    assert len(set(parts.properties)) == 3


def test_no_step_of_a_batch_is_counted_twice():
    least = {"decode": 1.0, "split": 2.0, "encode": 3.0, "properties": 1.0, "store": 6.0, "process": 10.0, "index": 1.0}

    steps = batch_parts(least)

    assert (steps["process"], steps["store"], steps["whole"]) == (2.0, 2.0, 12.0)
