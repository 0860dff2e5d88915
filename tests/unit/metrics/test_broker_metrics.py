"""Names that metrics give to clients, and messages that groups got."""

from typing import Any

import pytest

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.message_meters import MessageMeters
from rocketbroker.metrics.broker_metrics import BrokerMetricsManager, BrokerTables, version_name
from tests.support.fakes import FakeClock


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (513, "v5_5_0"),
        (512, "v5_5_0_snapshot"),
        (413, "v5_0_0"),
        (401, "v4_9_4"),
        (611, "v5_9_9"),
        (0, "0"),
        (-1, "-1"),
        (9999, "9999"),
    ],
)
def test_a_version_has_rocketmqs_name(ordinal: int, name: str):
    assert version_name(ordinal) == name


class Got:
    """Messages that groups got, as metrics show them."""

    def __init__(self) -> None:
        self.meters = MessageMeters()
        self.stats = BrokerStatsManager(FakeClock(), "C", self.meters)
        none: Any = None
        tables = BrokerTables(none, none, none, none, self.stats, self.meters, none)
        self._manager = BrokerMetricsManager(none, tables, none, none, none, none, none)

    def samples(self, *, is_bytes: bool = False) -> list[tuple[Any, ...]]:
        """Topic, group, ``is_retry`` or None, and number of each series."""
        found = [sample for sample in self._manager._out(is_bytes=is_bytes) if sample]
        return [(labels["topic"], labels["consumer_group"], labels.get("is_retry"), number) for labels, number in found]


def test_a_first_pop_begins_a_series_and_leaves_that_of_pulls_as_it_is():
    got = Got()
    item = got.stats.group_get("T", "G")
    item.add(5, 500)
    assert got.samples() == [("T", "G", None, 5)]
    item.add_popped(2, 200)
    assert got.samples() == [("T", "G", "false", 2), ("T", "G", None, 5)]
    item.add(1, 100)
    assert got.samples(is_bytes=True) == [("T", "G", "false", 200), ("T", "G", None, 600)]


def test_retried_messages_count_for_their_topic_where_they_are_popped():
    got = Got()
    got.stats.group_get("%RETRY%G_T", "G").add_popped(3, 30)
    got.stats.group_get("%RETRY%G+T", "G").add_popped(2, 20)
    got.stats.group_get("%RETRY%G", "G").add(4, 40)
    assert got.samples() == [("T", "G", "true", 5)]


def test_what_a_service_of_the_broker_reads_counts_for_its_group():
    got = Got()
    got.meters.read("SCHEDULE_TOPIC_XXXX", "SCHEDULE_CONSUMER", 70)
    got.meters.read("SCHEDULE_TOPIC_XXXX", "SCHEDULE_CONSUMER", 30)
    assert got.samples() == [("SCHEDULE_TOPIC_XXXX", "SCHEDULE_CONSUMER", None, 2)]
    assert got.samples(is_bytes=True) == [("SCHEDULE_TOPIC_XXXX", "SCHEDULE_CONSUMER", None, 100)]
