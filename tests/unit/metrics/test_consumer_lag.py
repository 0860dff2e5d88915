"""Lag of groups, from offsets and the ends of queues."""

from types import SimpleNamespace
from typing import Any

from rocketbroker.codec.remoting.bodies.topic_config import SimpleSubscriptionData, SubscriptionGroupConfig, TopicConfig
from rocketbroker.metrics.consumer_lag import ConsumerLagCalculator, GroupLag, Subscriptions
from tests.support.fakes import FakeClock


class Broker:
    """A broker with group G, which subscribes to topic T; a message is stored each second."""

    def __init__(self, queues: int = 1) -> None:
        self.clock = FakeClock()
        self.begin_ms = self.clock.time_ms()
        self.topics = {"T": TopicConfig("T", queues, queues)}
        self.groups = {"G": SimpleNamespace(is_broadcasting=False, subscription_table={"T": None, "%RETRY%G": None})}
        self.settings = SimpleNamespace(use_static_subscription=False)
        self.stored_groups: dict[str, SubscriptionGroupConfig] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.pulled: dict[tuple[str, int], int] = {}
        self.popped: dict[tuple[str, int], int] = {}
        self.removed = 0
        self.asked: list[tuple[str, int, int]] = []

    def _query(self, _group: str, topic: str, queue_id: int) -> int:
        return self.committed.get((topic, queue_id), -1)

    def _query_pull(self, group: str, topic: str, queue_id: int) -> int:
        return self.pulled.get((topic, queue_id), self._query(group, topic, queue_id))

    def _find(self, topic: str, _group: str, queue_id: int) -> SimpleNamespace | None:
        number = self.popped.get((topic, queue_id))
        return None if number is None else SimpleNamespace(in_flight=number)

    async def _times(self, places: list[tuple[str, int, int]]) -> list[int]:
        self.asked += places
        return [self.begin_ms + 1000 * offset for _, _, offset in places]

    async def look(self) -> list[GroupLag]:
        tables: list[Any] = [
            self.settings,
            SimpleNamespace(groups=self.stored_groups),
            SimpleNamespace(groups=self.groups),
        ]
        parts: list[Any] = [
            Subscriptions(*tables),
            SimpleNamespace(query=self._query, query_pull=self._query_pull),
            SimpleNamespace(find=self._find),
            SimpleNamespace(select=self.topics.get),
            SimpleNamespace(
                max_offset_in_queue=lambda topic, queue_id: self.ends.get((topic, queue_id), 0),
                min_offset_in_queue=lambda _topic, _queue_id: self.removed,
            ),
            SimpleNamespace(store_timestamps=self._times),
            self.clock,
        ]
        return await ConsumerLagCalculator(*parts).look()


async def test_a_group_that_pulls():
    broker = Broker(2)
    broker.ends = {("T", 0): 10, ("T", 1): 4}
    broker.committed = {("T", 0): 3, ("T", 1): 4}
    broker.pulled = {("T", 0): 8}
    broker.clock.advance(20)
    (lag,) = await broker.look()

    assert (lag.group, lag.topic, lag.is_retry) == ("G", "T", False)
    assert (lag.messages, lag.inflight, lag.ready, lag.queues) == (7, 5, 2, {0: 7, 1: 0})
    assert (lag.latency_ms, lag.queueing_ms) == (17_000, 12_000)


async def test_a_group_without_offsets_has_all_before_it():
    broker = Broker()
    broker.ends = {("T", 0): 10}
    (lag,) = await broker.look()

    assert (lag.messages, lag.inflight, lag.ready) == (10, 0, 10)


async def test_a_group_that_has_consumed_all_asks_for_no_time():
    broker = Broker()
    broker.ends = broker.committed = {("T", 0): 10}
    (lag,) = await broker.look()

    assert (lag.messages, lag.latency_ms, lag.queueing_ms, broker.asked) == (0, 0, 0, [])


async def test_popped_messages_are_in_flight_until_they_are_acknowledged():
    broker = Broker()
    broker.ends, broker.committed, broker.popped = {("T", 0): 10}, {("T", 0): 8}, {("T", 0): 5}
    (lag,) = await broker.look()

    assert (lag.messages, lag.inflight, lag.ready) == (7, 5, 2)


async def test_a_retry_topic_of_pop_counts_for_its_topic():
    broker = Broker()
    broker.topics["%RETRY%G_T"] = TopicConfig("%RETRY%G_T", 1, 1)
    broker.ends = {("%RETRY%G_T", 0): 2}

    assert [(each.topic, each.is_retry, each.messages) for each in await broker.look()] == [
        ("T", False, 0),
        ("T", True, 2),
    ]


async def test_groups_that_broadcast_and_missing_topics_are_left_out():
    broker = Broker()
    broker.groups["B"] = SimpleNamespace(is_broadcasting=True, subscription_table={"T": None})
    broker.groups["G"].subscription_table["Gone"] = None

    assert [(each.group, each.topic) for each in await broker.look()] == [("G", "T")]


async def test_removed_messages_have_the_age_of_the_first_that_is_left():
    broker = Broker()
    broker.ends, broker.removed = {("T", 0): 10}, 6
    broker.clock.advance(20)
    (lag,) = await broker.look()

    assert lag.latency_ms == 14_000


async def test_an_offset_beyond_the_end_is_no_negative_lag():
    broker = Broker()
    broker.ends, broker.committed = {("T", 0): 3}, {("T", 0): 10}
    (lag,) = await broker.look()

    assert (lag.messages, lag.inflight, lag.ready) == (0, 0, 0)


async def test_both_retry_topics_of_pop_are_one_lag():
    broker = Broker()
    for version, retry in enumerate(("%RETRY%G_T", "%RETRY%G+T"), 1):
        broker.topics[retry] = TopicConfig(retry, 1, 1)
        broker.ends[retry, 0] = version
    _, lag = await broker.look()

    assert (lag.topic, lag.is_retry, lag.messages, lag.queues) == ("T", True, 3, {0: 3})


async def test_groups_whose_settings_name_their_topics_have_a_lag_without_clients():
    broker = Broker()
    broker.settings.use_static_subscription = True
    broker.ends = {("T", 0): 10}
    named = SubscriptionGroupConfig("Offline", subscription_data_set=[SimpleSubscriptionData("T", "TAG", "*", 0)])
    broker.stored_groups = {"Offline": named, "G": SubscriptionGroupConfig("G")}
    (lag,) = await broker.look()

    assert (lag.group, lag.topic, lag.messages) == ("Offline", "T", 10)
