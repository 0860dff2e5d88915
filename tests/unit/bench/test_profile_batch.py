"""The batch_profile of batches sends what it says it sends, and its steps make up the whole."""

from pathlib import Path

import pytest

from bench.profiles import BATCH_STEPS, batch_parts, batch_profile, batch_table, timings
from bench.send_path import QUEUES, TOPIC, batch_frame, body_of, send_path
from rocketbroker.codec.message.message_batch import split_batch


async def test_the_steps_make_up_the_whole(tmp_path: Path):
    steps, together, pulled = await batch_profile(tmp_path, count=5, size=10, bursts=2)

    assert list(steps) == [*BATCH_STEPS, "whole"]
    assert sum(steps[step] for step in BATCH_STEPS) == pytest.approx(steps["whole"])
    assert together > 0
    assert pulled > 0


async def test_a_burst_stores_its_batches_alone_and_by_the_processor(tmp_path: Path):
    async with send_path(tmp_path) as path:
        timings(path, [batch_frame(number, 3, b"body") for number in range(QUEUES)], 3)

        assert path.store.appender.put_count == 2 * 3 * QUEUES
        assert path.store.queues.max_offset_in_queue(TOPIC, 1) == 3
        assert path.store.index_service is not None
        assert path.store.index_service.waiting == 0


def test_a_frame_holds_the_messages_of_a_batch():
    parts = split_batch(body_of(batch_frame(0, 3, b"the body")))

    assert list(parts.bodies) == [b"the body"] * 3
    assert len(set(parts.properties)) == 3


def test_no_step_is_counted_twice():
    least = {"decode": 1.0, "split": 2.0, "encode": 3.0, "properties": 1.0, "store": 6.0, "process": 10.0, "index": 1.0}

    steps = batch_parts(least)

    assert (steps["process"], steps["store"], steps["whole"]) == (2.0, 2.0, 12.0)
    assert "| encode | 3.00 | 25% |" in "\n".join(batch_table(steps))
