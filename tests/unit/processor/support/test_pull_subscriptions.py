"""Pulls that filter by properties, from the request to the answer: what is found, what waits, what is refused."""

import itertools
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.codec.filter.sql_filter import compiled
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.raw_records import PropertyBlocks
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.frame import decode_frame
from rocketbroker.codec.remoting.handler import HELD, InTurn
from rocketbroker.codec.remoting.headers.message import PullMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support import pull_subscriptions
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.read import checked_reader, filtered_reader
from tests.support.fakes import FakeConnection
from tests.support.golden_frames import Exchange, answers_to
from tests.support.processor_calls import decoded
from tests.support.processors import heart_beat_processor, pull_processor
from tests.support.stores import make_store, message
from tests.support.waiting import turns

SUSPEND, SUBSCRIPTION = 2, 4


class Consumer:
    """A consumer of group ``G`` that filters topic ``T``, and what serves it."""

    def __init__(self, parts: SimpleNamespace, store: MessageStore, holds: PullRequestHoldService) -> None:
        self.parts = parts
        self.store = store
        self.holds = holds
        self.connection = FakeConnection()
        self.processor = pull_processor(parts, store, holds)
        self.heart_beat = heart_beat_processor(parts)

    def subscribe(
        self,
        expression: str,
        version: int = 100,
        topic: str = "T",
        expression_type: str = "SQL92",
        group: str = "G",
    ) -> None:
        subscription = {
            "topic": topic,
            "subString": expression,
            "subVersion": version,
            "expressionType": expression_type,
        }
        data = {"groupName": group, "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription]}
        body = {"clientID": "c", "producerDataSet": [], "consumerDataSet": [data]}
        self.heart_beat.heart_beat(self.connection, request(RequestCode.HEART_BEAT, body=json.dumps(body).encode()))

    def put(self, *numbers: int, topic: str = "T", **properties: str) -> None:
        for n in numbers:
            self.store.appender.put_message(message(b"%d" % n, topic, properties={"n": str(n), **properties}))
        self.store.appender.dispatch()

    def pull(self, expression: str | None = None, offset: int = 0, flags: int = 0, **fields: Any) -> Any:
        values: dict[str, Any] = {
            "consumer_group": "G",
            "topic": "T",
            "queue_id": 0,
            "queue_offset": offset,
            "max_msg_nums": 32,
            "sys_flag": flags | (0 if expression is None else SUBSCRIPTION),
            "commit_offset": 0,
            "suspend_timeout_millis": 60_000,
            "sub_version": 100,
            "subscription": expression,
            "expression_type": "SQL92",
        }
        header = PullMessageRequestHeader(**(values | fields))
        return self.processor.pull_message(self.connection, request(RequestCode.PULL_MESSAGE, header))

    def refused(self, *arguments: Any, **fields: Any) -> tuple[int, str]:
        with pytest.raises(BrokerResponseError) as error:
            self.pull(*arguments, **fields)
        return error.value.code, error.value.remark

    def take_written(self) -> list[int]:
        """Return the messages that answered a held pull, once."""
        ((_, pieces),) = self.connection.answers
        self.connection.answers.clear()
        return numbers(pieces)


def answer_of(pieces: Any) -> Any:
    assert isinstance(pieces, list)
    return decode_frame(memoryview(b"".join(pieces))[4:])


def numbers(pieces: Any) -> list[int]:
    answer = answer_of(pieces)
    assert answer.code == 0
    return [int(each.body) for each in decode_messages(bytes(answer.body), decompress=False)]


def outcome(pieces: Any) -> tuple[int, int]:
    answer = answer_of(pieces)
    return answer.code, int(answer.header["nextBeginOffset"])


@pytest.fixture(autouse=True)
def _long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give filters the time for all messages, however busy the machine is."""
    for module in (checked_reader, filtered_reader, pull_subscriptions):
        monkeypatch.setattr(module, "FILTER_TURN_S", 60.0)


@pytest.fixture
async def consumer(parts: SimpleNamespace, tmp_path: Path) -> AsyncIterator[Consumer]:
    apply_updates([parts.config], {"enablePropertyFilter": "true"})
    parts.topic_configs.update(TopicConfig("T", 4, 4))
    holds = PullRequestHoldService(parts.config)
    store = make_store(tmp_path / "store", parts.clock, holds, mapped_file_size_consume_queue=20 * 2000)
    await store.start()
    yield Consumer(parts, store, holds)
    await holds.stop()
    await store.stop()


# -- what is found


async def test_the_filter_that_the_pull_carries(consumer: Consumer):
    consumer.put(*range(20))
    assert numbers(consumer.pull("n > 14 AND n <> 17")) == [15, 16, 18, 19]
    pieces = consumer.pull("n > 14 AND n <> 17", max_msg_nums=2)
    assert (numbers(pieces), outcome(pieces)) == ([15, 16], (0, 18)), "it goes on at the next one that matches"
    assert outcome(consumer.pull("n > 100")) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 20)


async def test_the_filter_of_the_heartbeat(consumer: Consumer):
    consumer.subscribe("n BETWEEN 3 AND 5")
    consumer.put(*range(20))
    assert numbers(consumer.pull()) == [3, 4, 5]
    consumer.subscribe("n IN ('7')", version=101)
    assert numbers(consumer.pull(sub_version=101)) == [7]


async def test_tags_beside_filters(consumer: Consumer):
    consumer.subscribe("a || b", expression_type="TAG")
    consumer.put(1, TAGS="a")
    consumer.put(2, TAGS="c")
    assert numbers(consumer.pull(expression_type="TAG")) == [1]
    assert numbers(consumer.pull("TAGS = 'c'")) == [2]


async def test_a_pull_looks_at_more_than_800_messages_if_it_has_the_time(consumer: Consumer):
    consumer.put(*range(2100))
    assert numbers(consumer.pull("n = 850")) == [850]
    # It ends with the file of the queue.
    assert outcome(consumer.pull("n = 2050")) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2000)
    assert numbers(consumer.pull("n = 2050", 2000)) == [2050]


async def test_a_start_later_the_same_is_found(consumer: Consumer, parts: SimpleNamespace):
    consumer.put(*range(300))
    await consumer.store.stop()
    store = make_store(
        Path(consumer.store.config.store_path_root_dir), parts.clock, mapped_file_size_consume_queue=40_000
    )
    await store.start()
    later = Consumer(parts, store, PullRequestHoldService(parts.config))
    found, offset = [], 0
    while offset < 300:
        pieces = later.pull("n > 279 OR n = 5", offset)
        if isinstance(pieces, InTurn):
            pieces = await pieces.work
        code, offset = outcome(pieces)
        found += numbers(pieces) if code == 0 else []
    assert found == [5, *range(280, 300)]
    await store.stop()


# -- what waits


def test_a_filter_of_many_queues_stops_at_a_match_and_at_the_end_of_a_turn(monkeypatch: pytest.MonkeyPatch):
    matches: dict[int, list[bool | None]] = {each: [] for each in range(6)}
    asked: list[int] = []

    def ask(queue_id: int) -> bool | None:
        asked.append(queue_id)
        return matches[queue_id].pop(0) if matches[queue_id] else False

    monkeypatch.setattr(pull_subscriptions, "HeldFilter", lambda _fetcher, _topic, each, *_: partial(ask, each))
    found = pull_subscriptions.filter_of_queues(None, "T", range(6), lambda _: 0, object())  # type: ignore[arg-type]
    assert found is not None

    def asks() -> tuple[bool | None, list[int]]:
        asked.clear()
        return found(), list(asked)

    assert asks() == (False, [5, 4, 3, 2, 1, 0])
    matches[3] = [None, True]
    assert asks() == (True, [5, 4, 3, 3])
    passed = (number * checked_reader.FILTER_TURN_S / 2 for number in itertools.count())
    monkeypatch.setattr(pull_subscriptions, "perf_counter", lambda: next(passed))
    matches[2] = [None]
    assert [asks() for _ in range(4)] == [(None, [5, 4]), (None, [3, 2]), (None, [2, 1]), (False, [0])]


@pytest.mark.proves("Filters", "only messages that match its SQL92 filter wake a held pull")
async def test_a_held_pull_is_woken_by_what_it_wants_alone(consumer: Consumer):
    consumer.subscribe("n > 5")
    assert consumer.pull(flags=SUSPEND) is HELD
    for n in range(6):
        consumer.put(n)
        await turns()
        assert consumer.connection.answers == []
    assert consumer.holds.held == 1
    consumer.put(1, 6, 2, 7)
    await turns()
    assert consumer.take_written() == [6, 7]
    assert consumer.holds.held == 0


async def test_each_message_is_looked_at_once_for_a_held_pull(consumer: Consumer):
    consumer.subscribe("n > 5000")
    looked: list[int] = []
    found = consumer.parts.consumer_filters.get("T", "G").message_filter

    class Counting:
        is_quick = True

        def is_matched_by_commit_log(self, properties: PropertyBlocks, is_over: Callable[[], bool]) -> list[bool]:
            matched: list[bool] = found.is_matched_by_commit_log(properties, is_over)
            looked.append(len(matched))
            return matched

    consumer.parts.consumer_filters.get("T", "G").message_filter = Counting()
    consumer.pull(flags=SUSPEND)
    for start in range(0, 2000, 1000):
        consumer.put(*range(start, start + 1000))
        await turns()
    assert sum(looked) == 2000
    assert consumer.holds.held == 1


async def test_a_held_pull_looks_at_no_more_than_800_messages_in_one_turn_of_the_loop(consumer: Consumer):
    consumer.pull("n >= 1700", flags=SUSPEND)
    consumer.put(*range(1700))
    (held,) = consumer.holds._held["T", 0]
    assert held.has_match is not None
    assert [held.has_match() for _ in range(4)] == [None, None, False, False]
    await turns()
    assert consumer.holds.held == 1
    consumer.put(*range(1000), 1700)
    await turns()
    ((_, answer),) = consumer.connection.answers
    assert outcome(answer) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2000)
    assert consumer.holds.held == 0


async def test_pulls_of_one_queue_each_with_its_filter(consumer: Consumer):
    consumer.pull("n = 1", flags=SUSPEND)
    other = Consumer(consumer.parts, consumer.store, consumer.holds)
    other.pull("n = 2", flags=SUSPEND)
    consumer.put(0, 2)
    await turns()
    assert consumer.connection.answers == []
    assert other.take_written() == [2]


async def test_a_pull_whose_connection_closes_is_not_asked_any_more(consumer: Consumer):
    consumer.pull("n = 1", flags=SUSPEND)
    consumer.put(1)
    consumer.holds.on_close(consumer.connection)
    await turns()
    assert consumer.connection.answers == []


async def test_a_held_pull_whose_filter_fails_is_answered(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    consumer.pull("n = 1", flags=SUSPEND)
    real = consumer.store.fetcher.fetch
    calls: list[int] = []

    def failing(*arguments: Any, **fields: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("no reading")
        return real(*arguments, **fields)

    monkeypatch.setattr(consumer.store.fetcher, "fetch", failing)
    consumer.put(1)
    await turns()
    assert consumer.take_written() == [1]
    assert "cannot be filtered" in caplog.text


# -- retries


@pytest.mark.proves("Filters", "retry topics with `filterSupportRetry`")
async def test_messages_of_a_retry_topic(consumer: Consumer):
    consumer.parts.topic_configs.update(TopicConfig("%RETRY%G", 1, 1))
    consumer.subscribe("n > 5")
    consumer.put(1, 9, topic="%RETRY%G", RETRY_TOPIC="T")
    assert numbers(consumer.pull("n < 5", topic="%RETRY%G")) == [1], "without the setting the pull's own filter counts"
    apply_updates([consumer.parts.config], {"filterSupportRetry": "true"})
    waiting = consumer.pull("n < 5", topic="%RETRY%G")
    assert isinstance(waiting, InTurn), "examined on a thread"
    assert numbers(await waiting.work) == [9]
    assert numbers(consumer.pull("*", topic="%RETRY%G", expression_type="TAG")) == [1, 9], "as Java clients ask"


# -- what is refused


@pytest.mark.proves("Filters", "without `enablePropertyFilter` SQL92 is rejected, and the setting is named")
async def test_without_the_setting_filters_are_rejected(consumer: Consumer):
    consumer.subscribe("n > 5")
    apply_updates([consumer.parts.config], {"enablePropertyFilter": "false"})
    remark = "enablePropertyFilter is false; set it to true to enable such filters"
    remark = f"The broker does not support consumer to filter message by SQL92: {remark}"
    assert consumer.refused("n > 5") == (ResponseCode.SYSTEM_ERROR, remark)
    assert consumer.refused() == (ResponseCode.SYSTEM_ERROR, remark)


async def test_a_wrong_filter_of_a_pull_is_rejected(consumer: Consumer):
    code, remark = consumer.refused("n >")
    assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert remark.startswith("parse the consumer's subscription failed: Invalid MessageSelector. At character 4: ")
    code, remark = consumer.refused("(" * 1000 + "n" + ")" * 1000)
    assert (code, "64 levels deep" in remark) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, True)
    code, remark = consumer.refused("n > 5", expression_type="JMS")
    assert (code, "'JMS' is unknown" in remark) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, True)


async def test_a_wrong_filter_of_a_heartbeat_is_reported_by_the_pull(consumer: Consumer):
    consumer.subscribe("n >")
    code, remark = consumer.refused()
    assert code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert remark.startswith(
        "The broker's consumer filter data is not exist!Your expression may be wrong! Invalid MessageSelector. At "
        "character 4: "
    )


async def test_filters_that_are_older_than_the_client_s(consumer: Consumer):
    consumer.subscribe("n > 5", version=99)
    assert consumer.refused()[0] == ResponseCode.SUBSCRIPTION_NOT_LATEST
    consumer.subscribe("n > 5", version=100)
    consumer.parts.consumer_filters.get("T", "G").data.client_version = 99
    assert consumer.refused()[0] == ResponseCode.FILTER_DATA_NOT_LATEST


async def test_filters_that_were_registered_while_they_were_off(consumer: Consumer):
    apply_updates([consumer.parts.config], {"enablePropertyFilter": "false"})
    consumer.subscribe("n > 5")
    apply_updates([consumer.parts.config], {"enablePropertyFilter": "true"})
    code, remark = consumer.refused()
    assert (code, remark.endswith("may be wrong!")) == (ResponseCode.FILTER_DATA_NOT_EXIST, True)
    consumer.subscribe("n > 5")
    consumer.put(6)
    assert numbers(consumer.pull()) == [6], "the next heartbeat brings it"


RECORDED_FILTER = "color = 'red' AND n > 3"


def recorded_pulls() -> list[Exchange]:
    """Pulls of a Java client that subscribed to ``RECORDED_FILTER``."""
    pulls = answers_to(RequestCode.PULL_MESSAGE)
    found = [
        each for each in pulls if decoded(each.request, PullMessageRequestHeader).header.expression_type == "SQL92"
    ]
    assert found
    return found


async def test_recorded_pulls_with_a_filter_are_answered(consumer: Consumer):
    for exchange in recorded_pulls():
        command = decoded(exchange.request, PullMessageRequestHeader)
        header = command.header
        if consumer.parts.topic_configs.select(header.topic) is None:
            consumer.parts.topic_configs.update(TopicConfig(header.topic, 8, 8))
            consumer.put(1, 5, topic=header.topic, color="red")
            consumer.put(2, 6, topic=header.topic, color="blue")
        consumer.subscribe(RECORDED_FILTER, header.sub_version, header.topic, group=header.consumer_group)
        header.queue_id = header.queue_offset = 0
        assert numbers(consumer.processor.pull_message(consumer.connection, command)) == [5]


def test_what_apache_s_broker_found_by_a_filter_is_found_by_ours():
    found = 0
    for exchange in recorded_pulls():
        assert exchange.response is not None
        for each in decode_messages(exchange.response.body(), decompress=False):
            properties = PropertyBlocks.of([each.properties_bytes])
            assert compiled(RECORDED_FILTER).is_matched_by_commit_log(properties) == [True]
            assert each.properties["color"] == "red"
            found += 1
    assert found > 1


@pytest.mark.parametrize("expression_type", ["TAG", "SQL92"])
async def test_a_subscription_that_is_too_long_is_rejected(consumer: Consumer, expression_type: str):
    code, remark = consumer.refused("a" * 20_000, flags=SUSPEND, expression_type=expression_type)

    assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert remark.startswith("maxSubscriptionLength: a subscription of 20,000 characters exceeds the limit of 16,384")
    assert consumer.holds.held == 0
