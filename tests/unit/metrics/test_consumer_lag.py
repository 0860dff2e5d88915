"""Lag of groups, from offsets, the ends of queues and samples of what filters leave out."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rocketbroker.broker.client.consumer_group_info import subscription_of
from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.codec.remoting.bodies.topic_config import SimpleSubscriptionData, SubscriptionGroupConfig, TopicConfig
from rocketbroker.metrics import consumer_lag
from rocketbroker.metrics.consumer_lag import ConsumerLagCalculator, GroupLag, Subscriptions
from rocketbroker.store.read.message_estimate import TaggedRange
from tests.support.fakes import FakeClock

ALL = subscription_of("T", "TAG", "*")


class Broker:
    """A broker with group G, which subscribes to topic T; a message is stored each second."""

    def __init__(self, queues: int = 1) -> None:
        self.clock = FakeClock()
        self.begin_ms = self.clock.time_ms()
        self.topics = {"T": TopicConfig("T", queues, queues)}
        self.groups = {"G": SimpleNamespace(is_broadcasting=False, subscription_table={"T": ALL, "%RETRY%G": ALL})}
        self.settings = SimpleNamespace(
            use_static_subscription=False, estimate_accumulation=True, enable_notify_before_pop_calculate_lag=True
        )
        self.stored_groups: dict[str, SubscriptionGroupConfig] = {}
        self.ends: dict[tuple[str, int], int] = {}
        # Offsets of the group, 0 in queues that a test does not name; ``None`` where it has committed none.
        self.committed: dict[tuple[str, int], int | None] = {}
        self.pulled: dict[tuple[str, int], int] = {}
        self.popped: dict[tuple[str, int], int] = {}
        self.removed = 0
        self.asked: list[tuple[str, int, int]] = []
        self.sampled: list[TaggedRange] = []
        # Share of the messages that a filter by tags leaves out.
        self.left_out = 0.5
        self.pops_woken = 0

    def _query(self, _group: str, topic: str, queue_id: int) -> int:
        offset = self.committed.get((topic, queue_id), 0)
        return -1 if offset is None else offset

    def _query_pull(self, group: str, topic: str, queue_id: int) -> int:
        return self.pulled.get((topic, queue_id), self._query(group, topic, queue_id))

    def _find(self, topic: str, _group: str, queue_id: int) -> SimpleNamespace | None:
        number = self.popped.get((topic, queue_id))
        return None if number is None else SimpleNamespace(in_flight=number)

    async def _times(self, places: list[tuple[str, int, int]]) -> list[int]:
        self.asked += places
        return [self.begin_ms + 1000 * offset for _, _, offset in places]

    async def _counts(self, ranges: list[TaggedRange]) -> list[int]:
        self.sampled += ranges
        return [round((each.end - each.begin) * (1 - self.left_out)) for each in ranges]

    async def _wake_filtered(self) -> None:
        self.pops_woken += 1

    def subscribe(self, expression: str, expression_type: str = "TAG") -> None:
        self.groups["G"].subscription_table["T"] = subscription_of("T", expression_type, expression)

    async def look(self) -> list[GroupLag]:
        tables: list[Any] = [
            self.settings,
            SimpleNamespace(groups=self.stored_groups),
            SimpleNamespace(groups=self.groups),
            SimpleNamespace(wake_filtered=self._wake_filtered),
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
            SimpleNamespace(store_timestamps=self._times, estimate_message_counts=self._counts),
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


async def test_messages_that_a_filter_by_tags_leaves_out_do_not_count():
    broker = Broker(2)
    broker.subscribe("A || B")
    broker.ends, broker.committed, broker.pulled = {("T", 0): 30, ("T", 1): 8}, {("T", 0): 10}, {("T", 0): 14}
    (lag,) = await broker.look()

    codes = frozenset({tags_code("A"), tags_code("B")})
    ranges = [("T", 0, 10, 14, codes), ("T", 0, 14, 30, codes), ("T", 1, 0, 8, codes)]
    assert broker.sampled == ranges
    assert (lag.messages, lag.inflight, lag.ready, lag.queues) == (14, 2, 12, {0: 10, 1: 4})


async def test_popped_messages_matched_before_they_were_popped():
    broker = Broker()
    broker.subscribe("A")
    broker.ends, broker.committed, broker.popped = {("T", 0): 20}, {("T", 0): 10}, {("T", 0): 5}
    (lag,) = await broker.look()

    assert (lag.messages, lag.inflight, lag.ready) == (10, 5, 5)


@pytest.mark.parametrize(
    ("expression_type", "expression", "estimates"), [("TAG", "*", True), ("SQL92", "a > 1", True), ("TAG", "A", False)]
)
async def test_all_messages_count_without_a_filter_that_is_estimated(
    expression_type: str, expression: str, *, estimates: bool
):
    broker = Broker()
    broker.settings.estimate_accumulation = estimates
    broker.subscribe(expression, expression_type)
    broker.ends = {("T", 0): 10}
    (lag,) = await broker.look()

    assert (lag.messages, lag.ready, broker.sampled) == (10, 10, [])


@pytest.mark.parametrize("enabled", [True, False])
async def test_held_pops_get_past_messages_that_they_leave_out_first(*, enabled: bool):
    broker = Broker()
    broker.settings.enable_notify_before_pop_calculate_lag = enabled
    await broker.look()

    assert broker.pops_woken == int(enabled)


async def test_a_group_without_offsets_lags_in_our_own_metric_only():
    broker = Broker()
    broker.subscribe("A")
    broker.ends, broker.committed = {("T", 0): 10}, {("T", 0): None}
    broker.clock.advance(20)
    (lag,) = await broker.look()

    assert (lag.messages, lag.inflight, lag.ready, lag.queues) == (0, 0, 0, {0: 5})
    assert (lag.latency_ms, lag.queueing_ms) == (0, 20_000)


async def test_a_group_that_pulled_and_has_not_committed_has_messages_that_are_ready():
    broker = Broker()
    broker.subscribe("A")
    broker.ends, broker.committed, broker.pulled = {("T", 0): 10}, {("T", 0): None}, {("T", 0): 6}
    broker.clock.advance(20)
    (lag,) = await broker.look()

    assert (lag.messages, lag.inflight, lag.ready, lag.queues) == (0, 0, 2, {0: 5})
    assert (lag.latency_ms, lag.queueing_ms) == (0, 14_000)


async def test_popped_messages_count_without_a_committed_offset():
    broker = Broker()
    broker.ends, broker.committed, broker.popped = {("T", 0): 20}, {("T", 0): None}, {("T", 0): 5}
    (lag,) = await broker.look()

    assert (lag.messages, lag.inflight, lag.ready, lag.queues) == (5, 5, 0, {0: 20})


async def test_a_queue_that_was_never_pulled_has_no_age_once_its_first_message_is_removed():
    broker = Broker()
    broker.ends, broker.committed, broker.removed = {("T", 0): 10}, {("T", 0): None}, 1
    (lag,) = await broker.look()

    assert (lag.queueing_ms, broker.asked) == (0, [])


async def test_a_group_that_has_consumed_all_asks_for_no_time():
    broker = Broker()
    broker.ends, broker.committed = {("T", 0): 10}, {("T", 0): 10}
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
    broker.groups["B"] = SimpleNamespace(is_broadcasting=True, subscription_table={"T": ALL})
    broker.groups["G"].subscription_table["Gone"] = ALL

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
    named = SubscriptionGroupConfig("Offline", subscription_data_set=[SimpleSubscriptionData("T", "TAG", "A", 0)])
    broker.stored_groups = {"Offline": named, "G": SubscriptionGroupConfig("G")}
    (lag,) = await broker.look()

    assert (lag.group, lag.topic, lag.messages) == ("Offline", "T", 5)


@pytest.mark.parametrize("estimates", [True, False])
async def test_filters_of_settings_are_parsed_a_part_in_each_turn(monkeypatch: pytest.MonkeyPatch, *, estimates: bool):
    parsed: list[str] = []
    monkeypatch.setattr(consumer_lag, "tag_codes_of", parsed.append)
    broker = Broker()
    broker.settings.use_static_subscription, broker.settings.estimate_accumulation = True, estimates
    named = [SimpleSubscriptionData(f"T{number}", "TAG", "A", 0) for number in range(1_000)]
    broker.stored_groups = {"Offline": SubscriptionGroupConfig("Offline", subscription_data_set=named)}
    reading = asyncio.create_task(broker.look())
    await asyncio.sleep(0)

    assert len(parsed) < 500
    assert await reading == []
    assert len(parsed) == 1_000 * estimates
