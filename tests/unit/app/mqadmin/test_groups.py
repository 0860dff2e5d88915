"""Rows of a group's progress, and of what it has popped."""

import random
from typing import Any

import msgspec
import pytest
import typer

from rocketbroker.app.mqadmin.command import Report, TrueFalse
from rocketbroker.app.mqadmin.groups import consumer_progress, pop_status, progress_of_group
from rocketbroker.client import AdminClient
from rocketbroker.client.core.errors import ConsumerNotOnlineError
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import ConsumerConnection
from rocketbroker.codec.remoting.bodies.offset import ConsumeStats, OffsetWrapper
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RemotingTimeoutError, RocketBrokerError


class Admin(AdminClient):
    """Administrator whose answers come without a broker."""

    def __init__(self, stats: ConsumeStats) -> None:
        super().__init__("127.0.0.1:1")
        self._stats = stats

    async def examine_consume_stats(
        self,
        _group: str,
        _topic: str | None = None,
        _cluster: str | None = None,
        *,
        addresses: object = None,
        failures: dict[str, RocketBrokerError] | None = None,
    ) -> ConsumeStats:
        return self._stats


async def test_queues_are_in_order_whatever_the_order_of_the_answer():
    queues = [MessageQueue(topic, broker, at) for topic in "TU" for broker in ("a", "b") for at in range(3)]
    shuffled = random.Random(7).sample(queues, len(queues))
    assert shuffled != queues
    stats = ConsumeStats({queue: OffsetWrapper(10 + queue.queue_id, 7, 9) for queue in shuffled})
    report = await progress_of_group(Admin(stats), "CG", None, None, False)
    assert isinstance(report.data, dict)
    rows = report.data["queues"]
    assert [MessageQueue(row.topic, row.broker_name, row.queue_id) for row in rows] == queues
    assert [(row.diff, row.inflight) for row in rows[:3]] == [(3, 2), (4, 2), (5, 2)]


def popped(waiting: int, in_flight: int, next_return: int | None) -> OffsetWrapper:
    """A queue as our broker reports it."""
    return OffsetWrapper(20, 10, 10 + in_flight, 0, in_flight, next_return, waiting)


STATS = ConsumeStats(
    {
        MessageQueue("U", "a", 0): popped(0, 2, 7_000),
        MessageQueue("T", "a", 1): popped(4, 0, None),
        MessageQueue("T", "a", 0): popped(0, 3, 5_000),
        MessageQueue("%RETRY%CG_T", "a", 0): popped(1, 1, 9_000),
        MessageQueue("Pulled", "a", 0): OffsetWrapper(10, 7, 9),
    }
)


def cells(report: Report) -> list[tuple[object, ...]]:
    """Topic, queue, waiting, in flight and next return of each row."""
    rows = [msgspec.to_builtins(row) for row in report.data["queues"]]
    names = "topic", "queueId", "waiting", "inFlight", "nextReturn"
    return [tuple(row[name] for name in names) for row in rows]


@pytest.mark.parametrize("options", [{"topic_name": "T"}, {"show_client_ip": TrueFalse.true}])
async def test_options_of_one_group_need_a_group(options: dict[str, Any]):
    with pytest.raises(typer.BadParameter, match="need -g"):
        await consumer_progress(Admin(ConsumeStats()), **options)


async def test_what_a_group_has_popped_by_queue():
    report = await pop_status(Admin(STATS), "CG")
    assert report.data["group"] == "CG"
    assert cells(report) == [
        ("%RETRY%CG_T", 0, 1, 1, 9_000),
        ("T", 0, 0, 3, 5_000),
        ("T", 1, 4, 0, 0),
        ("U", 0, 0, 2, 7_000),
    ]


async def test_what_a_group_has_popped_of_a_topic():
    report = await pop_status(Admin(STATS), "CG", "T")
    assert [row[:2] for row in cells(report)] == [("%RETRY%CG_T", 0), ("T", 0), ("T", 1)]


async def test_a_broker_that_reports_no_pops_has_no_rows():
    report = await pop_status(Admin(ConsumeStats({MessageQueue("T", "a", 0): OffsetWrapper(10, 7, 9)})), "CG")
    assert report.data["queues"] == []
    assert report.parts[-1] == "group CG has popped nothing at a broker that reports it"


async def test_a_broker_that_reports_no_waiting_messages_has_the_difference_of_its_offsets():
    older = OffsetWrapper(20, 13, 15, 0, pop_in_flight=2)
    report = await pop_status(Admin(ConsumeStats({MessageQueue("T", "a", 0): older})), "CG")
    assert cells(report) == [("T", 0, 7, 2, 0)]


async def test_a_frozen_broker_hides_only_the_groups_that_it_has():
    class HalfFrozen(AdminClient):
        async def fetch_all_topic_list(self) -> list[str]:
            return ["%RETRY%frozen", "%RETRY%well"]

        async def examine_consume_stats(
            self,
            group: str,
            _topic: str | None = None,
            _route: str | None = None,
            *,
            addresses: object = None,
            failures: dict[str, RocketBrokerError] | None = None,
        ) -> ConsumeStats:
            if group == "frozen":
                raise RemotingTimeoutError("no answer")
            return ConsumeStats({MessageQueue("T", "a", 0): OffsetWrapper(10, 7)}, 1.5)

        async def examine_consumer_connection_info(self, group: str) -> ConsumerConnection:
            raise ConsumerNotOnlineError(ResponseCode.CONSUMER_NOT_ONLINE, group)

    async with HalfFrozen("127.0.0.1:1") as admin:
        report = await consumer_progress(admin)
    assert [(row.group, row.diff_total) for row in report.data["groups"]] == [("well", 3)]
    assert report.failures == ["frozen: no answer"]
