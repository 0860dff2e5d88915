"""Rows of a group's progress."""

import random

from rocketbroker.app.mqadmin.groups import progress_of_group
from rocketbroker.client import AdminClient
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.offset import ConsumeStats, OffsetWrapper


class Admin(AdminClient):
    """Administrator whose answers come without a broker."""

    def __init__(self, stats: ConsumeStats) -> None:
        super().__init__("127.0.0.1:1")
        self._stats = stats

    async def examine_consume_stats(
        self, _group: str, _topic: str | None = None, _cluster: str | None = None
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
