"""Metrics of POP, over a broker's real check points."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.broker.message_meters import MessageMeters
from rocketbroker.metrics.pop_metrics import PopMetricsManager
from tests.support.pop_broker import PopBroker
from tests.support.running import running


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PopBroker]:
    async with running(PopBroker(tmp_path / "store", mapped_file_size_consume_queue=20_000)) as found:
        yield found


def figures(broker: PopBroker, meters: MessageMeters | None = None) -> dict[str, list[Any]]:
    """Return the samples by the name of the metric, without what all names have."""
    manager = PopMetricsManager(broker.check_points, meters or MessageMeters(), broker.clock)
    return {
        each.name.removeprefix("rocketmq_pop_"): [sample for sample in each.samples if sample]
        for each in manager.families()
    }


async def test_check_points_and_acknowledgements_count_by_group(broker: PopBroker):
    for _ in range(3):
        broker.send()
    first, *_ = await broker.pop(queue_id=0, invisible_ms=30_000)
    await broker.ack("G", first)
    found = figures(broker)

    assert found["checkpoint_buffer_size"] == [({}, 1)]
    group = {"consumer_group": "G", "topic": "T", "put_status": "PUT_OK"}
    assert found["revive_in_message_total"] == [
        ({**group, "revive_message_type": "CK"}, 1),
        ({**group, "revive_message_type": "ACK"}, 1),
    ]


async def test_what_is_due_counts_by_the_queue_of_the_revive_topic(broker: PopBroker):
    for _ in range(3):
        broker.send()
    first, *_ = await broker.pop(queue_id=0, invisible_ms=30_000)
    queue = str(first.info.revive_qid)
    assert {number for _, number in figures(broker)["revive_lag_milliseconds"]} == {0}
    broker.clock.advance(32)
    found = figures(broker)

    lag = {labels["queue_id"]: number for labels, number in found["revive_lag_milliseconds"]}
    latency = {labels["queue_id"]: number for labels, number in found["revive_latency_milliseconds"]}
    assert len(lag) == 8
    assert {each: number for each, number in lag.items() if number} == {queue: 3}
    assert 1_900 <= latency.pop(queue) <= 2_000
    assert set(latency.values()) == {0}


async def test_returned_messages_count_by_the_result(broker: PopBroker):
    broker.stats.meters = meters = MessageMeters()
    broker.send()
    await broker.pop(queue_id=0, invisible_ms=1_000)
    broker.clock.advance(2)
    while broker.check_points.count:
        await broker.revive.advance()

    found = figures(broker, meters)
    ((labels, number),) = found["revive_out_message_total"]
    assert labels.pop("queue_id") in map(str, range(8))
    assert (labels, number) == ({"consumer_group": "G", "topic": "T", "revive_message_type": "CK"}, 1)
    ((_, scans),) = found["buffer_scan_time_consume_milliseconds"]
    assert scans.count == sum(scans.buckets) > 0
    assert found["revive_retry_messages_total"] == [({"consumer_group": "G", "topic": "T", "put_status": "PUT_OK"}, 1)]
