"""Rates between looks, and the turns in which groups and topics are asked."""

import pytest

from rocketbroker.app.mqadmin.top_data import WINDOW_S, Collector, Rates
from rocketbroker.client import AdminClient
from rocketbroker.client.core.errors import ConsumerNotOnlineError, TopicRouteError
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import Connection, ConsumerConnection
from rocketbroker.codec.remoting.bodies.offset import ConsumeStats, OffsetWrapper, TopicOffset, TopicStatsTable
from rocketbroker.codec.remoting.bodies.route import BrokerData, ClusterInfo
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RemotingTimeoutError
from tests.support.fakes import FakeClock


class Seconds:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_rate_spans_the_window():
    clock = Seconds()
    rates = Rates(clock)
    assert rates.of("key", 100, reported=7.5) == 7.5
    clock.now = 2
    assert rates.of("key", 120) == 10
    for clock.now, count in ((4, 120), (6, 120), (8, 120), (2 + WINDOW_S, 120)):
        rates.of("key", count)
    clock.now = 4 + WINDOW_S
    assert rates.of("key", 150) == 30 / WINDOW_S


def test_counters_that_are_gone_are_forgotten():
    clock = Seconds()
    rates = Rates(clock)
    for key in ("kept", "gone"):
        rates.of(key, 10)
    rates.keep({"kept"})
    clock.now = 1
    assert [rates.of(key, 20, reported=7) for key in ("kept", "gone")] == [10, 7]


def test_a_counter_that_went_back_begins_anew():
    clock = Seconds()
    rates = Rates(clock)
    rates.of("key", 1000)
    clock.now = 1
    assert rates.of("key", 5, reported=3) == 0
    clock.now = 2
    assert rates.of("key", 9) == 4


class Admin(AdminClient):
    """Administrator of a cluster without servers: two brokers, one of them down, groups and topics by name."""

    def __init__(self, groups: list[str], topics: list[str]) -> None:
        super().__init__("127.0.0.1:1")
        self.groups = groups
        self.topics = topics
        self.asked: list[str] = []
        self.put = 0
        self.frozen = False

    async def examine_broker_cluster_info(self) -> ClusterInfo:
        up = BrokerData("C", "up", {0: "up:1"})
        return ClusterInfo({"up": up, "down": BrokerData("C", "down", {0: "down:1"})}, {"C": ["up", "down"]})

    async def fetch_broker_runtime_stats(self, address: str) -> dict[str, str]:
        if address == "down:1":
            raise RemotingTimeoutError("no answer from down:1")
        return {"putTps": "3.5 2.0 1.0", "msgPutTotalTodayNow": str(self.put), "commitLogDiskRatio": "0.5"}

    async def fetch_all_topic_list(self) -> list[str]:
        return [*self.topics, *(f"%RETRY%{group}" for group in self.groups), "up", "C", "C_REPLY_TOPIC", "TBW102"]

    async def get_system_topic_list(self) -> list[str]:
        return ["TBW102"]

    async def examine_consume_stats(
        self,
        group: str,
        _topic: str | None = None,
        _route: str | None = None,
        *,
        addresses: object = None,
        failures: object = None,
    ) -> ConsumeStats:
        self.asked.append(group)
        if group == "gone":
            raise TopicRouteError("no route")
        if self.frozen:
            raise RemotingTimeoutError("no answer from up:1")
        return ConsumeStats({MessageQueue("T", "up", 0): OffsetWrapper(10, 7)}, 1.5)

    async def examine_consumer_connection_info(self, group: str) -> ConsumerConnection:
        if group == "offline":
            raise ConsumerNotOnlineError(ResponseCode.CONSUMER_NOT_ONLINE, "not online")
        return ConsumerConnection([Connection("id", "1.2.3.4:5", "JAVA", 513)])

    async def examine_topic_stats(
        self, topic: str, _route: str | None = None, *, addresses: object = None, failures: object = None
    ) -> TopicStatsTable:
        self.asked.append(topic)
        return TopicStatsTable({MessageQueue(topic, "up", 0): TopicOffset(2, 12)}, 0.5)


def collector(admin: Admin, clock: Seconds, at_a_look: int = 100) -> Collector:
    return Collector(admin, FakeClock().time_ms, clock, None, at_a_look)


async def test_a_look_has_brokers_groups_and_topics():
    admin = Admin(["online", "offline", "gone"], ["T", "%DLQ%online"])
    clock = Seconds()
    looking = collector(admin, clock)
    seen = await looking.look()
    up, down = sorted(seen.brokers, key=lambda row: row.broker, reverse=True)
    assert (up.in_rate, up.disk, up.problem) == (3.5, 0.5, "")
    assert (down.runtime, down.problem) == ({}, "no answer from down:1")
    groups = {row.group: (row.lag, row.out_rate, len(row.clients), row.problem) for row in seen.groups}
    assert groups == {"online": (3, 1.5, 1, ""), "offline": (3, 1.5, 0, ""), "gone": (0, 0, 0, "")}
    assert [(row.topic, row.messages) for row in seen.topics] == [("%DLQ%online", 10), ("T", 10)]
    admin.put, clock.now = 40, 4
    again = {row.broker: row.in_rate for row in (await looking.look()).brokers}
    assert again == {"up": 10, "down": 0}


async def test_groups_and_topics_are_asked_in_turn():
    admin = Admin(["a", "b", "c"], ["T1", "T2", "T3"])
    looking = collector(admin, Seconds(), at_a_look=2)
    first = await looking.look()
    assert admin.asked == ["a", "b", "T1", "T2"]
    assert (first.groups_asked, first.topics_asked) == (2, 2)
    assert [row.group for row in first.groups] == ["a", "b"]
    admin.asked.clear()
    second = await looking.look()
    assert admin.asked == ["c", "a", "T3", "T1"]
    assert [row.group for row in second.groups] == ["a", "b", "c"]
    admin.groups = ["b"]
    assert [row.group for row in (await looking.look()).groups] == ["b"]


async def test_a_cluster_that_does_not_exist_is_an_error_with_the_known_ones():
    with pytest.raises(Exception, match="the name server knows: C"):
        await Collector(Admin([], []), FakeClock().time_ms, Seconds(), "Other").look()


async def test_figures_of_a_broker_that_froze_stay():
    admin = Admin(["G", "new"], [])
    looking = collector(admin, Seconds(), at_a_look=1)
    await looking.look()
    admin.frozen = True
    await looking.look()
    groups = {row.group: (row.lag, row.problem) for row in (await looking.look()).groups}
    assert groups == {"G": (3, "no answer from up:1"), "new": (0, "no answer from up:1")}
