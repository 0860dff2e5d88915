"""Pops against a running store: what they deliver, in which order, what they refuse, and when they wait."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.broker.pop.pop_queues import PopQueue
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.pop_info import parse_order_count_info, pop_retry_topic
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.handler import HELD, Audience, InTurn
from rocketbroker.codec.remoting.headers.pop import (
    PeekMessageRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus
from rocketbroker.store.read import checked_reader, filtered_reader
from rocketbroker.store.read.get_message import GetMessageResult
from rocketbroker.store.read.message_fetcher import MessageFetcher
from tests.support.fakes import FakeConnection
from tests.support.pop_broker import TOPIC, Handed, PopBroker, as_command
from tests.support.running import running
from tests.support.stores import count_as_far_back
from tests.support.waiting import turns

FULL = PutMessageResult(PutMessageStatus.DISK_FULL, reason="full")


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PopBroker]:
    """A broker with topic T of two queues."""
    async with running(PopBroker(tmp_path / "store", mapped_file_size_consume_queue=20_000)) as found:
        yield found


def header(**fields: Any) -> PopMessageRequestHeader:
    """A pop of one queue that does not wait."""
    names: dict[str, Any] = {
        "consumer_group": "G",
        "topic": TOPIC,
        "queue_id": 0,
        "max_msg_nums": 32,
        "invisible_time": 60_000,
        "poll_time": 0,
        "born_time": 0,
        "init_mode": 0,
    }
    return PopMessageRequestHeader(**(names | fields))


def answer(broker: PopBroker, **fields: Any) -> Any:
    """Return the answer of a pop that does not wait."""
    found = broker.pops.pop_message(FakeConnection(), request(0, header(**fields)))
    return found if found is HELD or isinstance(found, InTurn) else as_command(found)


def bodies(found: list[Handed]) -> list[bytes]:
    """Return the bodies of messages."""
    return [each.body for each in found]


def fields_of(command: Command) -> PopMessageResponseHeader:
    """Return the fields of an answer."""
    assert isinstance(command.header, PopMessageResponseHeader)
    return command.header


def set_config(broker: PopBroker, **updates: str) -> None:
    """Change settings at run time."""
    apply_updates([broker.config], updates)


def unreadable(*_: Any) -> Any:
    """Fail to read."""
    raise StoreError("no disk")


# -- refusals


def lacks_read(broker: PopBroker) -> None:
    set_config(broker, brokerPermission="2")


def without_group(broker: PopBroker) -> None:
    set_config(broker, autoCreateSubscriptionGroup="false")


def disabled_group(broker: PopBroker) -> None:
    broker.groups.update(SubscriptionGroupConfig("G", consume_enable=False))


def write_only(broker: PopBroker) -> None:
    broker.topics.update(TopicConfig("W", 1, 1, perm=2))


def of_batches(broker: PopBroker) -> None:
    broker.topics.update(TopicConfig("B", 1, 1, attributes={"+queue.type": "BatchCQ"}))


def with_filters(broker: PopBroker) -> None:
    set_config(broker, enablePropertyFilter="true")


def nothing(_broker: PopBroker) -> None:
    """Change nothing."""


REFUSALS: dict[str, tuple[Callable[[PopBroker], None], dict[str, Any], ResponseCode, str]] = {
    "the broker may not be read": (
        lacks_read,
        {},
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] pop message is forbidden: its brokerPermission is 2, which lacks read (4)",
    ),
    "no topic": (nothing, {"topic": "X"}, ResponseCode.TOPIC_NOT_EXIST, "topic[X] not exist, apply first please!"),
    "a topic without read": (
        write_only,
        {"topic": "W"},
        ResponseCode.NO_PERMISSION,
        "the topic[W] peeking message is forbidden: its perm is 2, which lacks read (4)",
    ),
    "no queue": (
        nothing,
        {"queue_id": 2},
        ResponseCode.INVALID_PARAMETER,
        "queueId[2] is illegal, topic:[T] topicConfig.readQueueNums:[2] consumer:[127.0.0.1:50000]",
    ),
    "a topic of batches": (
        of_batches,
        {"topic": "B"},
        ResponseCode.INVALID_PARAMETER,
        "topic B has queue.type=BatchCQ, from which nothing is popped; pull, or use another topic",
    ),
    "33 messages": (
        nothing,
        {"max_msg_nums": 33},
        ResponseCode.INVALID_PARAMETER,
        "the broker[127.0.0.1] pop message's num is greater than 32: it is 33; ask for 1 to 32",
    ),
    "no messages": (
        nothing,
        {"max_msg_nums": 0},
        ResponseCode.INVALID_PARAMETER,
        "the broker[127.0.0.1] pop message's num is greater than 32: it is 0; ask for 1 to 32",
    ),
    "a negative time": (
        nothing,
        {"invisible_time": -1},
        ResponseCode.INVALID_PARAMETER,
        "invisibleTime -1 is illegal; name 0 to 31,622,400,000 ms",
    ),
    "longer than a year": (
        nothing,
        {"invisible_time": 366 * 86_400_000 + 1},
        ResponseCode.INVALID_PARAMETER,
        "invisibleTime 31622400001 is illegal; name 0 to 31,622,400,000 ms",
    ),
    "no group": (
        without_group,
        {},
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        "subscription group [G] does not exist",
    ),
    "a disabled group": (
        disabled_group,
        {},
        ResponseCode.NO_PERMISSION,
        "subscription group no permission, G: consumeEnable is false",
    ),
    "a filter without the setting": (
        nothing,
        {"exp_type": "SQL92", "exp": "a = 1"},
        ResponseCode.SYSTEM_ERROR,
        "The broker does not support consumer to filter message by SQL92: enablePropertyFilter is false",
    ),
    "a filter that cannot be read": (
        with_filters,
        {"exp_type": "SQL92", "exp": "a >"},
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "parse the consumer's subscription failed: ",
    ),
    "a pop that waited": (
        nothing,
        {"born_time": 1_795_255_000_000 - 10_501, "poll_time": 10_000},
        ResponseCode.POLLING_TIMEOUT,
        "the broker[127.0.0.1] pop message is timeout too much",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_pop_is_refused_with_the_reason(broker: PopBroker, name: str) -> None:
    prepare, fields, code, remark = REFUSALS[name]
    prepare(broker)
    broker.send()
    with pytest.raises(BrokerResponseError) as error:
        answer(broker, **fields)
    assert error.value.code == code
    assert error.value.remark is not None
    assert error.value.remark.startswith(remark)
    assert broker.check_points.count == 0


def test_a_client_does_not_move_the_brokers_own_group(broker: PopBroker) -> None:
    """The offsets of that group say where a start begins to read."""
    broker.send()
    asked = request(0, header(consumer_group="CID_RMQ_SYS_REVIVE_GROUP"))
    with pytest.raises(BrokerResponseError, match="belongs to the broker") as error:
        broker.pops.pop_message(FakeConnection(audience=Audience.CLIENT), asked)
    assert error.value.code == ResponseCode.NO_PERMISSION
    assert broker.offsets.query("CID_RMQ_SYS_REVIVE_GROUP", TOPIC, 0) < 0


def test_a_pop_that_has_just_waited_is_served(broker: PopBroker) -> None:
    broker.send()
    now = broker.clock.time_ms()
    assert answer(broker, born_time=now - 10_500, poll_time=10_000).code == ResponseCode.SUCCESS


async def test_nothing_is_popped_without_timer_messages(tmp_path: Path) -> None:
    async with running(PopBroker(tmp_path / "other", timer_wheel_enable=False)) as broker:
        with pytest.raises(BrokerResponseError, match="forbidden because timerWheelEnable is false; set it to true"):
            answer(broker)


@pytest.mark.parametrize("refusal", ["", "full"])
async def test_the_first_pop_of_a_group_is_answered_once_the_group_is_on_disk(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    """A kill before that would leave messages in flight of a group that is gone, and they would not return."""
    broker.send()
    written = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(broker.groups, "settled", {"G": written}.get)
    pop = answer(broker)
    assert isinstance(pop, InTurn)
    popped = asyncio.ensure_future(pop.work)
    await turns(3)
    assert not popped.done()
    written.set_result(refusal)
    if refusal:
        with pytest.raises(BrokerResponseError, match="full: the change is undone"):
            await popped
    else:
        await popped
    assert broker.check_points.count == 1


async def test_too_many_open_check_points_end_pops(broker: PopBroker) -> None:
    set_config(broker, popCkMaxBufferSize="1000")
    for _ in range(2):
        broker.send()
    await broker.pop(queue_id=0, most=1)
    broker.check_points.count += 999
    with pytest.raises(BrokerResponseError) as error:
        answer(broker)
    assert error.value.code == ResponseCode.POLLING_FULL
    assert error.value.remark == (
        "popCkMaxBufferSize: 1,000 check points are open and the limit is 1,000; acknowledge messages, or raise "
        "popCkMaxBufferSize"
    )


def test_a_pop_without_its_check_point_delivers_nothing(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.send()
    monkeypatch.setattr(broker.store.appender, "put_copy", lambda _: FULL)
    with pytest.raises(BrokerResponseError, match="DISK_FULL") as error:
        answer(broker)
    assert error.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert broker.offsets.query("G", TOPIC, 0) == 0
    assert not broker.consumers.has_popped("G", TOPIC)


def test_a_pop_keeps_what_it_has_when_the_next_check_point_fails(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue_id in (0, 1):
        broker.send(queue_id=queue_id)
    put, puts = broker.store.appender.put_copy, iter([True, False])
    monkeypatch.setattr(broker.store.appender, "put_copy", lambda each: put(each) if next(puts) else FULL)
    found = answer(broker, queue_id=-1)
    assert len(decode_messages(b"".join([found.body]), decompress=False)) == 1
    assert fields_of(found).rest_num == 1
    assert broker.check_points.count == 1


def test_an_unreadable_disk_is_told(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.send()
    monkeypatch.setattr(MessageFetcher, "fetch", unreadable)
    with pytest.raises(BrokerResponseError, match="no disk") as error:
        answer(broker)
    assert error.value.code == ResponseCode.SYSTEM_ERROR


# -- deliveries


async def test_messages_are_delivered_to_one_client_of_a_group(broker: PopBroker) -> None:
    for number in range(5):
        broker.send(b"%d" % number)
    assert bodies(await broker.pop(queue_id=0, most=2)) == [b"0", b"1"]
    broker.clock.advance(0.001)
    assert bodies(await broker.pop(queue_id=0)) == [b"2", b"3", b"4"]
    assert await broker.pop() == []
    assert len(await broker.pop("other")) == 5


def test_the_answer_says_what_is_left(broker: PopBroker) -> None:
    for queue_id in (0, 0, 0, 1):
        broker.send(queue_id=queue_id)
    found = fields_of(answer(broker, max_msg_nums=2))
    assert (found.rest_num, found.start_offset_info, found.msg_offset_info) == (1, "0 0 0", "0 0 0,1")
    assert (found.pop_time, found.invisible_time) == (broker.clock.time_ms(), 60_000)
    broker.clock.advance(0.001)
    found = fields_of(answer(broker, queue_id=-1, max_msg_nums=1))
    assert found.rest_num == 1


@pytest.mark.parametrize("days", [0, 365])
async def test_messages_are_hidden_for_no_time_or_for_a_year(broker: PopBroker, days: int) -> None:
    broker.send(b"a")
    (first,) = await broker.pop(invisible_ms=days * 86_400_000)
    for _ in range(days):
        await broker.run()
        assert await broker.pop() == []
        broker.clock.advance(86_400)
    await broker.run()
    (second,) = await broker.pop()
    assert (second.body, second.message.reconsume_times) == (b"a", 1)
    assert (first.info.retry, second.info.retry) == ("0", "1")


def test_a_pop_that_waits_for_less_than_no_time_is_not_held(broker: PopBroker) -> None:
    assert answer(broker, poll_time=-1).code == ResponseCode.POLLING_TIMEOUT
    broker.send()
    assert answer(broker, poll_time=-1).code == ResponseCode.SUCCESS


def test_a_pop_says_what_its_group_subscribes_to(broker: PopBroker) -> None:
    answer(broker, exp_type="TAG", exp="a || b")
    found = broker.consumers.find_subscription_data("G", TOPIC)
    assert found is not None
    assert found.data.sub_string == "a || b"


def test_a_busy_queue_is_left_out(broker: PopBroker) -> None:
    broker.send()
    broker.check_points.queues.get(TOPIC, "G", 0).is_busy = True
    found = answer(broker)
    assert found.code == ResponseCode.POLLING_TIMEOUT
    assert fields_of(found).rest_num == 1


def test_one_queue_has_one_pop_a_millisecond_from_an_offset(broker: PopBroker) -> None:
    """Else two check points would have one name."""
    broker.send()
    answer(broker)
    broker.offsets.replace("G", TOPIC, 0, 0)
    assert answer(broker).code == ResponseCode.POLLING_TIMEOUT
    broker.clock.advance(0.001)
    assert answer(broker).code == ResponseCode.SUCCESS


async def test_a_full_queue_is_left_out(broker: PopBroker) -> None:
    set_config(broker, enablePopMessageThreshold="true", popInflightMessageThreshold="1")
    for _ in range(4):
        broker.send()
    first = await broker.pop(queue_id=0, most=2)
    broker.clock.advance(0.001)
    assert await broker.pop(queue_id=0) == []
    await broker.ack("G", first[0])
    assert len(await broker.pop(queue_id=0)) == 2


@pytest.mark.parametrize(
    ("exp_type", "exp", "wanted"),
    [
        (None, None, [b"a", b"b", b"c"]),
        ("TAG", "a || c", [b"a", b"c"]),
        ("SQL92", "TAGS = 'b' OR color = 'red'", [b"b", b"c"]),
    ],
)
async def test_filters_select_and_pass_the_others(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch, exp_type: str | None, exp: str | None, wanted: list[bytes]
) -> None:
    for module in (checked_reader, filtered_reader):  # whatever else the machine does
        monkeypatch.setattr(module, "FILTER_TURN_S", 60.0)
    set_config(broker, enablePropertyFilter="true")
    for tag in ("a", "b", "c"):
        broker.send(tag.encode(), TAGS=tag, color="red" if tag == "c" else "blue")
    found = await broker.pop(queue_id=0, exp_type=exp_type, exp=exp)
    assert bodies(found) == wanted
    for each in found:
        await broker.ack("G", each)
    assert broker.check_points.count == 0
    assert broker.offsets.query("G", TOPIC, 0) == 3


async def test_messages_that_nobody_wants_are_passed(broker: PopBroker) -> None:
    broker.send(TAGS="a")
    assert await broker.pop(queue_id=0, exp_type="TAG", exp="x") == []
    assert (broker.offsets.query("G", TOPIC, 0), broker.check_points.count) == (1, 0)


@pytest.mark.parametrize(("init_mode", "in_memory", "wanted"), [(0, "false", 3), (1, "true", 3), (1, "false", 1)])
async def test_a_new_group_begins_where_it_says(broker: PopBroker, init_mode: int, in_memory: str, wanted: int) -> None:
    set_config(broker, initPopOffsetByCheckMsgInMem=in_memory)
    for _ in range(3):
        broker.send()
    assert len(await broker.pop(queue_id=0, init_mode=init_mode)) == wanted


async def test_a_new_group_begins_at_the_end_of_old_messages(broker: PopBroker) -> None:
    for _ in range(3):
        broker.send()
    count_as_far_back(broker.store)
    assert len(await broker.pop(queue_id=0, init_mode=1)) == 1


@pytest.mark.parametrize(("offset", "wanted"), [(99, 0), (3, 0), (1, 2)])
async def test_an_offset_outside_the_queue_is_moved(broker: PopBroker, offset: int, wanted: int) -> None:
    for _ in range(3):
        broker.send()
    broker.offsets.commit("G", TOPIC, 0, offset)
    assert len(await broker.pop(queue_id=0)) == wanted
    broker.send(b"next")
    broker.clock.advance(1)
    assert bodies(await broker.pop(queue_id=0)) == [b"next"]


# -- messages that are not in memory


class ColdRead:
    """Lets a read wait, and something happen meanwhile."""

    def __init__(self, broker: PopBroker, monkeypatch: pytest.MonkeyPatch, error: str = "") -> None:
        fetch = broker.store.fetcher.fetch

        def later(_self: MessageFetcher, *args: Any) -> Any:
            async def read() -> GetMessageResult:
                self.meanwhile(broker.check_points.queues.get(TOPIC, "G", 0))
                if error:
                    raise StoreError(error)
                found = fetch(*args)
                assert isinstance(found, GetMessageResult)
                return found

            return read()

        self.was_busy = False
        monkeypatch.setattr(MessageFetcher, "fetch", later)

    def meanwhile(self, queue: PopQueue) -> None:
        """Note that others leave the queue out."""
        self.was_busy = queue.is_busy


async def test_messages_are_read_from_disk_in_turn(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.send(b"a")
    cold = ColdRead(broker, monkeypatch)
    found = answer(broker)
    assert isinstance(found, InTurn)
    assert as_command(await found.work).code == ResponseCode.SUCCESS
    assert cold.was_busy
    assert not broker.check_points.queues.get(TOPIC, "G", 0).is_busy


async def test_a_failed_read_frees_the_queue(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.send()
    ColdRead(broker, monkeypatch, "no disk")
    found = answer(broker)
    with pytest.raises(BrokerResponseError, match="no disk") as error:
        await found.work
    assert error.value.code == ResponseCode.SYSTEM_ERROR
    assert not broker.check_points.queues.get(TOPIC, "G", 0).is_busy
    assert broker.check_points.count == 0


async def test_a_pop_that_read_from_disk_does_not_wait(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    ColdRead(broker, monkeypatch)
    command = await answer(broker, poll_time=1_000).work
    assert command.code == ResponseCode.POLLING_TIMEOUT


# -- retries


async def with_retries(tmp_path: Path, version: int, **settings: str) -> PopBroker:
    """A broker, started, whose retry topic of a version has a message."""
    config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1", enable_retry_topic_v2=version == 2)
    broker = PopBroker(tmp_path / "retries", config=config)
    await broker.start()
    set_config(broker, **settings)
    name = pop_retry_topic(TOPIC, "G", version)
    broker.topics.update(TopicConfig(name, 1, 1))
    broker.send(b"again", topic=name)
    return broker


@pytest.mark.parametrize("version", [1, 2])
async def test_retries_come_under_the_name_of_their_topic(tmp_path: Path, version: int) -> None:
    broker = await with_retries(tmp_path, version, retrieveMessageFromPopRetryTopicV1="false")
    try:
        (found,) = await broker.pop()
        assert (found.message.topic, found.info.retry) == (TOPIC, str(version))
    finally:
        await broker.stop()


async def test_a_retry_has_the_handle_of_its_delivery(tmp_path: Path) -> None:
    """One of a batch keeps all properties that it was sent with."""
    broker = await with_retries(tmp_path, 1)
    try:
        broker.send(b"forwarded", topic=pop_retry_topic(TOPIC, "G"), POP_CK="9 1 60000 3 0 broker-b 0 9", A="a")
        first, second = await broker.pop()
        assert second.info == first.info._replace(queue_offset=1)
        assert second.message.properties["A"] == "a"
        await broker.ack("G", second)
        assert broker.check_points.queues.get(pop_retry_topic(TOPIC, "G"), "G", 0).in_flight == 1
    finally:
        await broker.stop()


async def test_old_retry_topics_are_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await with_retries(tmp_path, 1, enableRetryTopicV2="true")
    try:
        monkeypatch.setattr(random, "random", lambda: 0.5)
        assert await broker.pop() == []
        monkeypatch.setattr(random, "random", lambda: 0.499)
        assert bodies(await broker.pop()) == [b"again"]
    finally:
        await broker.stop()


async def test_retries_come_as_they_are_stored_if_that_is_set(tmp_path: Path) -> None:
    broker = await with_retries(tmp_path, 1, popResponseReturnActualRetryTopic="true")
    try:
        found = answer(broker, queue_id=-1)
        (message,) = decode_messages(b"".join([found.body]), decompress=False)
        assert (message.topic, "POP_CK" in message.properties) == ("%RETRY%G_T", False)
        assert fields_of(found).start_offset_info == "1 0 0"
    finally:
        await broker.stop()


@pytest.mark.parametrize(("number", "first"), [(19, b"again"), (20, b"own")])
async def test_some_pops_read_retries_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, first: bytes
) -> None:
    broker = await with_retries(tmp_path, 1)
    try:
        broker.send(b"own")
        monkeypatch.setattr(random, "random", lambda: (number + 0.5) / 100)
        assert bodies(await broker.pop(queue_id=0, most=1)) == [first]
    finally:
        await broker.stop()


# -- priorities


@pytest.fixture
async def by_priority(broker: PopBroker) -> PopBroker:
    """A broker whose topic P has a message in each of four queues."""
    broker.topics.update(TopicConfig("P", 4, 4, attributes={"+message.type": "PRIORITY"}))
    for queue_id in range(4):
        broker.send(b"%d" % queue_id, queue_id, "P")
    return broker


async def popped_one_by_one(broker: PopBroker, topic: str = "P") -> bytes:
    """Return the bodies of single pops, in order."""
    found: list[bytes] = []
    while one := bodies(await broker.pop(topic=topic, most=1)):
        found += one
    return b"".join(found)


@pytest.mark.parametrize(("ascending", "wanted"), [("true", b"3210"), ("false", b"0123")])
async def test_the_highest_priority_comes_first(by_priority: PopBroker, ascending: str, wanted: bytes) -> None:
    set_config(by_priority, priorityOrderAsc=ascending)
    assert b"".join(bodies(await by_priority.pop("Other", topic="P"))) == wanted
    assert await popped_one_by_one(by_priority) == wanted


@pytest.mark.parametrize(("ascending", "wanted"), [("true", b"1032"), ("false", b"2301")])
async def test_other_topics_are_popped_from_any_queue_on(
    by_priority: PopBroker, monkeypatch: pytest.MonkeyPatch, ascending: str, wanted: bytes
) -> None:
    set_config(by_priority, priorityOrderAsc=ascending)
    by_priority.topics.update(TopicConfig("P", 4, 4, attributes={"-message.type": ""}))
    monkeypatch.setattr(random, "random", lambda: 0.625)
    assert b"".join(bodies(await by_priority.pop(topic="P"))) == wanted


@pytest.mark.parametrize(("number", "wanted"), [(29, b"3210"), (30, b"0321")])
async def test_a_group_reads_by_priority_as_often_as_it_says(
    by_priority: PopBroker, monkeypatch: pytest.MonkeyPatch, number: int, wanted: bytes
) -> None:
    by_priority.groups.update(SubscriptionGroupConfig("G", attributes={"+priority.factor": "30"}))
    monkeypatch.setattr(random, "random", lambda: (number + 0.5) / 100)
    assert b"".join(bodies(await by_priority.pop(topic="P"))) == wanted


async def test_each_chance_is_independent_of_the_others(by_priority: PopBroker) -> None:
    name = pop_retry_topic("P", "G")
    by_priority.topics.update(TopicConfig(name, 1, 1))
    set_config(by_priority, popFromRetryProbability="20", popFromRetryProbabilityForPriority="50")
    topic, retry_topic = by_priority.topics.select("P"), (name, 0)
    assert topic is not None
    random.seed(1)

    def first_of_many(priority_factor: int) -> Counter[tuple[str, int]]:
        attributes = {"priority.factor": str(priority_factor)}
        group = SubscriptionGroupConfig("G", attributes=attributes)
        asked = header(topic="P", queue_id=-1)
        return Counter(next(by_priority.pops._plan(topic, group, asked)) for _ in range(4_000))

    # 20 % of half of them, and 50 % of the other half.
    assert 1_250 < first_of_many(50)[retry_topic] < 1_550
    # The few that do not read by priority begin at any queue.
    assert set(first_of_many(98)) == {retry_topic, *(("P", each) for each in range(4))}


async def test_an_ordered_pop_has_no_priorities(by_priority: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "random", lambda: 0.625)
    found = await by_priority.pop("O", topic="P", order=True, attempt_id="a")
    assert b"".join(bodies(found)) == b"1032"


@pytest.mark.parametrize(("probability", "wanted"), [("0", b"3210again"), ("100", b"again3210")])
async def test_retries_have_the_lowest_or_the_highest_priority(
    by_priority: PopBroker, probability: str, wanted: bytes
) -> None:
    set_config(by_priority, popFromRetryProbability="50", popFromRetryProbabilityForPriority=probability)
    name = pop_retry_topic("P", "G")
    by_priority.topics.update(TopicConfig(name, 1, 1))
    by_priority.send(b"again", topic=name)
    assert b"".join(bodies(await by_priority.pop(topic="P"))) == wanted


async def test_retries_keep_their_priority_in_queues_of_their_own(by_priority: PopBroker) -> None:
    set_config(by_priority, useSeparateRetryQueue="true", popFromRetryProbabilityForPriority="100")
    await by_priority.pop(topic="P", invisible_ms=1_000)
    by_priority.clock.advance(1)
    await by_priority.run()
    again = await by_priority.pop(topic="P")
    assert b"".join(bodies(again)) == b"3210"
    assert [(each.info.retry, each.info.queue_id, each.info.queue_offset) for each in again] == [
        ("1", 3, 0), ("1", 2, 0), ("1", 1, 0), ("1", 0, 0)
    ]  # fmt: skip


# -- order


async def in_order(broker: PopBroker, attempt: str, most: int = 32, **fields: Any) -> list[Handed]:
    """Pop queue 0 in order."""
    return await broker.pop("O", 0, most, order=True, attempt_id=attempt, **fields)


async def test_a_batch_blocks_its_queue(broker: PopBroker) -> None:
    for body in (b"a", b"b", b"c"):
        broker.send(body)
    first = await in_order(broker, "1", 2)
    assert [each.info.revive_qid for each in first] == [999, 999]
    assert await in_order(broker, "2") == []
    # The client that lost the answer.
    again = await in_order(broker, "1", 2)
    assert bodies(again) == [b"a", b"b"]
    for each in again:
        await broker.ack("O", each)
    assert bodies(await in_order(broker, "3")) == [b"c"]


async def test_a_batch_comes_again_without_what_is_acknowledged(broker: PopBroker) -> None:
    for body in (b"a", b"b", b"c"):
        broker.send(body)
    first = await in_order(broker, "1", 3, invisible_ms=1_000)
    await broker.ack("O", first[1])
    broker.clock.advance(1)
    answered = answer(broker, consumer_group="O", order=True, attempt_id="2")
    assert [bytes(each.body) for each in decode_messages(b"".join([answered.body]))] == [b"a", b"c"]
    counts = parse_order_count_info(fields_of(answered).order_count_info or "")
    assert {key.offset: count for key, count in counts.items() if key.offset is not None} == {0: 1, 1: 1, 2: 1}


async def test_a_changed_time_blocks_longer(broker: PopBroker) -> None:
    broker.send()
    (found,) = await in_order(broker, "1", invisible_ms=1_000)
    await broker.change("O", found, 5_000)
    broker.clock.advance(4.9)
    assert await in_order(broker, "2") == []
    broker.clock.advance(0.1)
    assert len(await in_order(broker, "2")) == 1


# -- waiting


async def test_a_pop_that_finds_nothing_is_held(broker: PopBroker) -> None:
    assert answer(broker, poll_time=1_000) is HELD
    assert broker.polling.polling_num(TOPIC, "G", 0) == 1
    assert answer(broker, poll_time=1_000, queue_id=-1) is HELD
    assert broker.polling.polling_num(TOPIC, "G", -1) == 1


def test_a_held_pop_waits_until_an_ordered_queue_is_visible(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.send()
    answer(broker, order=True, attempt_id="1", invisible_time=700)
    waits: list[int] = []
    monkeypatch.setattr(broker.polling, "suspend", lambda _request, timeout_ms: waits.append(timeout_ms))
    answer(broker, order=True, attempt_id="2", poll_time=10_000)
    answer(broker, order=True, attempt_id="2", poll_time=500)
    assert waits == [700, 500]


def test_a_held_pop_with_a_filter_looks_at_each_queue(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    set_config(broker, enablePropertyFilter="true")
    held: list[Any] = []
    monkeypatch.setattr(broker.polling, "suspend", lambda request, _timeout_ms: held.append(request))
    answer(broker, queue_id=-1, poll_time=1_000, exp_type="SQL92", exp="a = '1'")
    (pop,) = held
    assert pop.has_match() is False
    broker.send(queue_id=1, a="2")
    assert pop.has_match() is False
    broker.send(queue_id=1, a="1")
    assert pop.has_match() is True


def test_what_is_left_wakes_another_pop(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[tuple[Any, ...]] = []
    monkeypatch.setattr(broker.polling, "wake", lambda *place: woken.append(place))
    for _ in range(2):
        broker.send()
    answer(broker, max_msg_nums=1)
    assert woken == [(TOPIC, "G", 0)]
    broker.clock.advance(0.001)
    answer(broker, max_msg_nums=1)
    assert len(woken) == 1


# -- resets


def test_a_reset_without_its_record_stays(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.send()
    broker.reset.assign("G", TOPIC, {0: 0})
    monkeypatch.setattr(broker.store.appender, "put_copy", lambda _: FULL)
    with pytest.raises(BrokerResponseError, match="DISK_FULL"):
        answer(broker)
    assert broker.offsets.is_reset("G", TOPIC, 0)


# -- peek


async def test_a_peek_hides_nothing(broker: PopBroker) -> None:
    for queue_id in (0, 0, 1):
        broker.send(queue_id=queue_id)
    found = await broker.call(broker.pops.peek_message, PeekMessageRequestHeader(TOPIC, -1, 2, "G"))
    assert len(decode_messages(b"".join([found.body]))) == 2
    assert fields_of(found).rest_num == 3  # as RocketMQ counts: those in the answer are among the rest
    assert broker.check_points.count == 0
    assert broker.stats.passing_gets.popped == 2, "nobody made the group yet"
    assert len(await broker.pop()) == 3
    found = await broker.call(broker.pops.peek_message, PeekMessageRequestHeader(TOPIC, 0, 2, "G"))
    assert (found.code, found.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
    broker.send()
    await broker.call(broker.pops.peek_message, PeekMessageRequestHeader(TOPIC, 0, 2, "G"))
    assert broker.stats.group_get(TOPIC, "G").popped == 4
    with pytest.raises(BrokerResponseError, match="it is 99; ask for 1 to 32"):
        await broker.call(broker.pops.peek_message, PeekMessageRequestHeader(TOPIC, 0, 99, "G"))


async def test_a_large_peek_is_not_joined(broker: PopBroker) -> None:
    asked = request(RequestCode.PEEK_MESSAGE, PeekMessageRequestHeader(TOPIC, 0, 32, "G"))
    asked.opaque = 77
    for size in (100, 40_000, 40_000):
        broker.send(b"x" * size)
    found = await broker.pops.peek_message(FakeConnection(), asked).work
    assert isinstance(found, list)
    assert len(found) > 1
    answered = as_command(found)
    assert (answered.opaque, answered.code, answered.remark) == (77, ResponseCode.SUCCESS, "FOUND")
    assert [len(each.body) for each in decode_messages(b"".join([answered.body]))] == [100, 40_000, 40_000]


async def test_a_peek_reads_from_disk_in_turn(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    for queue_id in (0, 1):
        broker.send(queue_id=queue_id)
    ColdRead(broker, monkeypatch)
    found = await broker.call(broker.pops.peek_message, PeekMessageRequestHeader(TOPIC, -1, 32, "G"))
    assert (found.code, fields_of(found).rest_num) == (ResponseCode.SUCCESS, 2)
    assert len(decode_messages(b"".join([found.body]))) == 2


@pytest.mark.parametrize("is_cold", [False, True])
async def test_a_peek_says_that_the_disk_cannot_be_read(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch, is_cold: bool
) -> None:
    broker.send()
    if is_cold:
        ColdRead(broker, monkeypatch, "no disk")
    else:
        monkeypatch.setattr(MessageFetcher, "fetch", unreadable)
    with pytest.raises(BrokerResponseError, match="no disk") as error:
        await broker.call(broker.pops.peek_message, PeekMessageRequestHeader(TOPIC, 0, 2, "G"))
    assert error.value.code == ResponseCode.SYSTEM_ERROR
