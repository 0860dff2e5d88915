import logging
from collections import Counter
from typing import cast

import msgspec
import pytest

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.offset.offset_reset import OffsetReset
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.client import ConsumerData, ConsumeType, MessageModel
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.message import CloneGroupOffsetRequestHeader as Header
from rocketbroker.codec.remoting.headers.message import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import QueryCorrectionOffsetHeader as HeaderQueryCorrectionOffset
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.processor.admin.offsets import OffsetRequests
from rocketbroker.processor.support.waiting_queries import WaitingQueries
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from tests.support.fakes import FakeClock, FakeConnection
from tests.support.golden_store import manifest
from tests.support.processor_calls import call, call_async, family, recorded, refusal, refusal_async
from tests.support.stores import make_store, message


def test_ends_of_recorded_queues(golden_store):
    processor = family(OffsetRequests, queues=golden_store.queues)
    queues = manifest("clean")["consumequeues"]
    for name, queue in queues.items():
        topic, _, queue_id = name.rpartition("/")
        answer = call(processor.get_max_offset, GetMaxOffsetRequestHeader(topic, int(queue_id)))
        assert answer == (0, None, {"offset": str(queue["entries"])}, b"")


def test_queue_without_messages_ends_at_0(store):
    processor = family(OffsetRequests, queues=store.queues)
    assert call(processor.get_max_offset, GetMaxOffsetRequestHeader("T", 3)).fields == {"offset": "0"}


def test_what_is_not_readable_yet_counts_when_asked_for(store):
    processor = family(OffsetRequests, queues=store.queues)
    store.appender.put_message(message(topic="T"))
    assert call(processor.get_max_offset, GetMaxOffsetRequestHeader("T", 0)).fields == {"offset": "0"}
    assert call(processor.get_max_offset, GetMaxOffsetRequestHeader("T", 0, committed=False)).fields == {"offset": "1"}
    store.appender.dispatch()
    assert call(processor.get_max_offset, GetMaxOffsetRequestHeader("T", 0)).fields == {"offset": "1"}


def test_recorded_requests_are_answered_in_the_same_shape(store):
    processor = family(OffsetRequests, queues=store.queues)
    stored: Counter[tuple[str, int]] = Counter()
    seen = 0
    for command, theirs in recorded(30, GetMaxOffsetRequestHeader):
        header = command.header
        wanted = int(theirs.fields["offset"])
        # The store has as many messages as the recorded one had then.
        while stored[header.topic, header.queue_id] < wanted:
            store.appender.put_message(message(topic=header.topic, queue_id=header.queue_id))
            stored[header.topic, header.queue_id] += 1
        store.appender.dispatch()
        assert call(processor.get_max_offset, header) == theirs
        seen += 1
    assert seen == 18


@pytest.mark.parametrize(("topic", "queue_id"), [("../up", 0), ("a/b", 0), ("", 0), ("T", -1)])
def test_bad_requests_are_named(store, topic, queue_id):
    code, remark = refusal(
        family(OffsetRequests, queues=store.queues).get_max_offset, GetMaxOffsetRequestHeader(topic, queue_id)
    )
    assert code == ResponseCode.INVALID_PARAMETER
    assert "; use " in remark


def test_start_of_a_queue_whose_first_messages_are_gone(store, parts):
    for _ in range(3):
        result = store.appender.put_message(message(topic="T"))
    store.appender.dispatch()
    processor = family(OffsetRequests, parts, queues=store.queues)
    assert call(processor.get_min_offset, GetMinOffsetRequestHeader("T", 0)).fields == {"offset": "0"}
    store.queues.correct_min_offsets(result.physical_offset)
    assert call(processor.get_min_offset, GetMinOffsetRequestHeader("T", 0)).fields == {"offset": "2"}
    assert call(processor.get_min_offset, GetMinOffsetRequestHeader("T", 7)).fields == {"offset": "0"}


async def test_a_queue_of_batches_without_any(tmp_path, parts):
    parts.topic_configs.update(TopicConfig("B", 2, 2, attributes={"+queue.type": "BatchCQ"}))
    store = make_store(tmp_path / "batches", parts.clock, batch_topics=["B"])
    await store.start()
    processor = family(OffsetRequests, parts, queues=store.queues)
    assert call(processor.get_min_offset, GetMinOffsetRequestHeader("B", 0)).fields == {"offset": "-1"}
    store.appender.put_message(message(topic="B"))
    store.appender.dispatch()
    assert call(processor.get_min_offset, GetMinOffsetRequestHeader("B", 0)).fields == {"offset": "0"}
    assert call(processor.get_min_offset, GetMinOffsetRequestHeader("B", 1)).fields == {"offset": "-1"}
    await store.stop()


def test_recorded_requests(store, parts):
    processor = family(OffsetRequests, parts, queues=store.queues)
    seen = 0
    for command, theirs in recorded(31):
        if theirs.code:
            continue  # a request without fields, which the transport answers
        header = GetMinOffsetRequestHeader(command.header["topic"], int(command.header["queueId"]))
        ours = call(processor.get_min_offset, header)
        # Java's binary headers leave an empty remark out.
        assert (ours.code, ours.remark or None, ours.fields) == (theirs.code, theirs.remark or None, theirs.fields)
        seen += 1
    assert seen == 14


@pytest.mark.parametrize(("topic", "queue_id"), [("../up", 0), ("", 0), ("T", -1)])
def test_bad_requests_are_named_get_min_offset(store, parts, topic, queue_id):
    code, remark = refusal(
        family(OffsetRequests, parts, queues=store.queues).get_min_offset, GetMinOffsetRequestHeader(topic, queue_id)
    )
    assert code == ResponseCode.INVALID_PARAMETER
    assert "; use " in remark


def test_first_times_of_recorded_queues(golden_store):
    processor = family(OffsetRequests, queries=golden_store.queries)
    first: dict[tuple[str, int], int] = {}
    for entry in manifest("clean")["messages"]:
        if f"{entry['topic']}/{entry['queueId']}" in manifest("clean")["consumequeues"]:
            first.setdefault((entry["topic"], entry["queueId"]), entry["storeTimestamp"])
    for (topic, queue_id), time in first.items():
        answer = call(processor.get_earliest_msg_storetime, GetEarliestMsgStoretimeRequestHeader(topic, queue_id))
        assert answer == (0, None, {"timestamp": str(time)}, b"")
    assert len(first) > 10


def test_queue_without_messages(golden_store):
    processor = family(OffsetRequests, queries=golden_store.queries)
    header = GetEarliestMsgStoretimeRequestHeader("Nope", 0)
    assert call(processor.get_earliest_msg_storetime, header).fields == {"timestamp": "-1"}


async def test_recorded_requests_get_earliest_msg_storetime(tmp_path):
    wanted = {}
    exchanges = list(recorded(32, GetEarliestMsgStoretimeRequestHeader))
    for command, theirs in exchanges:
        wanted[command.header.topic, command.header.queue_id] = int(theirs.fields["timestamp"])
    clock = FakeClock(min(wanted.values()))
    store = make_store(tmp_path, clock)
    await store.start()
    for (topic, queue_id), time in sorted(wanted.items(), key=lambda item: item[1]):
        clock.advance((time - clock.time_ms()) / 1000)
        store.appender.put_message(message(topic=topic, queue_id=queue_id))
    store.appender.dispatch()
    processor = family(OffsetRequests, queries=store.queries)
    assert [call(processor.get_earliest_msg_storetime, command.header) == theirs for command, theirs in exchanges] == [
        True
    ] * 6
    await store.stop()


@pytest.mark.parametrize(("topic", "queue_id"), [("../up", 0), ("", 0), ("T", -1)])
def test_bad_requests_are_named_get_earliest_msg_storetime(golden_store, topic, queue_id):
    header = GetEarliestMsgStoretimeRequestHeader(topic, queue_id)
    code, remark = refusal(family(OffsetRequests, queries=golden_store.queries).get_earliest_msg_storetime, header)
    assert code == ResponseCode.INVALID_PARAMETER
    assert "; use " in remark


QUEUE = [m for m in manifest("clean")["messages"] if (m["topic"], m["queueId"]) == ("StFill", 0)]


@pytest.fixture
def processor(golden_store):
    return family(OffsetRequests, queries=golden_store.queries, waiting=WaitingQueries(BrokerConfig()))


@pytest.mark.parametrize("boundary", [None, "LOWER", "lower", ""])
async def test_first_message_at_or_after_a_time(processor, boundary):
    for wanted in QUEUE[::13]:
        time = wanted["storeTimestamp"]
        first = min(m["queueOffset"] for m in QUEUE if m["storeTimestamp"] >= time)
        answer = await call_async(
            processor.search_offset_by_timestamp, SearchOffsetRequestHeader("StFill", 0, time, boundary)
        )
        assert answer == (0, None, {"offset": str(first)}, b"")


async def test_last_message_not_after_a_time(processor):
    for wanted in QUEUE[::13]:
        time = wanted["storeTimestamp"]
        last = max(m["queueOffset"] for m in QUEUE if m["storeTimestamp"] <= time)
        answer = await call_async(
            processor.search_offset_by_timestamp, SearchOffsetRequestHeader("StFill", 0, time, "UPPER")
        )
        assert answer.fields == {"offset": str(last)}


async def test_queue_without_messages_search_offset_by_timestamp(processor):
    assert (
        await call_async(processor.search_offset_by_timestamp, SearchOffsetRequestHeader("Nope", 0, 1000))
    ).fields == {"offset": "0"}


async def test_recorded_requests_ask_for_times_before_the_first_message(processor):
    seen = [
        await call_async(processor.search_offset_by_timestamp, command.header) == theirs
        for command, theirs in recorded(29, SearchOffsetRequestHeader)
    ]
    assert seen == [True] * 6


@pytest.mark.parametrize(
    ("header", "named"),
    [
        (SearchOffsetRequestHeader("../up", 0, 0), "'../up'"),
        (SearchOffsetRequestHeader("T", -1, 0), "queueId -1"),
        (SearchOffsetRequestHeader("T", 0, 0, "MIDDLE"), "boundaryType 'MIDDLE'"),
    ],
)
async def test_bad_requests_are_named_search_offset_by_timestamp(processor, header, named):
    code, remark = await refusal_async(processor.search_offset_by_timestamp, header)
    assert code == ResponseCode.INVALID_PARAMETER
    assert named in remark
    assert "; use " in remark


def make(parts, store, reset, encoder):
    return family(OffsetRequests, parts, queues=store.queues, queries=store.queries, reset=reset, encoder=encoder)


@pytest.fixture
def times(parts, store):
    """Two queues of topic T with a message every 10 ms, five in the first and three in the second; when each came."""
    parts.topic_configs.update(TopicConfig("T", 2, 2))
    parts.subscription_groups.find("g")
    found: dict[int, list[int]] = {0: [], 1: []}
    for number in range(5):
        for queue_id in (0, 1) if number < 3 else (0,):
            found[queue_id].append(parts.clock.time_ms())
            store.appender.put_message(message(topic="T", queue_id=queue_id))
            parts.clock.advance(0.01)
    store.appender.dispatch()
    return found


@pytest.fixture
def processor_invoke_broker_to_reset_offset(parts, store, offset_reset, times, encoder):
    return make(parts, store, offset_reset, encoder)


@pytest.fixture
def client(parts):
    """Registers a client of group g; gives its connection."""

    def register(
        name="client",
        language="JAVA",
        version=513,
        model=MessageModel.CLUSTERING,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
    ):
        connection = FakeConnection()
        channel = ClientChannelInfo(connection, name, language, version, parts.clock.monotonic())
        parts.consumers.register(channel, ConsumerData("g", consume_type, model))
        connection.sent.clear()
        return connection

    return register


def header(timestamp=-1, *, force=True, queue_id=-1, offset=None, group="g", topic="T"):
    return ResetOffsetRequestHeader(group, topic, timestamp, force, queue_id, offset)


def offsets_in(answer):
    return {dict(queue)["queueId"]: offset for queue, offset in answer.body["offsetTable"].items()}


@pytest.mark.proves("Consumers", "offsets reset by time and to an offset, forward and backward, online and offline")
@pytest.mark.parametrize(
    ("queue_id", "number", "later_ms", "expected"),
    [(0, 2, 0, 2), (0, 2, 1, 3), (0, 2, -1, 2), (0, 0, -10_000, 0), (0, 4, 0, 4), (0, 4, 1, 5), (1, 1, 0, 1)],
)
async def test_to_a_time_to_the_millisecond(
    parts, processor_invoke_broker_to_reset_offset, times, queue_id, number, later_ms, expected
):
    answer = await call_async(
        processor_invoke_broker_to_reset_offset.invoke_broker_to_reset_offset,
        header(times[queue_id][number] + later_ms, queue_id=queue_id),
    )
    assert (answer.code, offsets_in(answer)) == (0, {queue_id: expected})
    assert parts.offsets.offsets_of("g", "T") == {queue_id: expected}


@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize(("timestamp", "expected"), [(-1, {0: 5, 1: 3}), (0, {0: 0, 1: 0})])
async def test_all_queues_forward_and_backward(
    parts, processor_invoke_broker_to_reset_offset, start, timestamp, expected
):
    for queue_id in (0, 1):
        parts.offsets.commit("g", "T", queue_id, start)
    answer = await call_async(processor_invoke_broker_to_reset_offset.invoke_broker_to_reset_offset, header(timestamp))
    assert offsets_in(answer) == expected
    assert parts.offsets.offsets_of("g", "T") == expected


async def test_to_a_time_whose_message_is_removed_while_it_is_looked_for(
    parts, processor_invoke_broker_to_reset_offset, store, times, monkeypatch
):
    find = store.queries.offset_in_queue_by_time

    async def find_and_remove(*arguments):
        found = await find(*arguments)
        queue = store.queues.find("T", 0)
        store.queues.correct_min_offsets(queue.entry(3)[0])
        return found

    monkeypatch.setattr(store.queries, "offset_in_queue_by_time", find_and_remove)
    answer = await call_async(
        processor_invoke_broker_to_reset_offset.invoke_broker_to_reset_offset, header(times[0][1], queue_id=0)
    )
    assert offsets_in(answer) == {0: 3}


@pytest.mark.parametrize("offset", [0, 3, 5])
async def test_to_an_offset_whatever_is_forced(parts, processor_invoke_broker_to_reset_offset, offset):
    parts.offsets.commit("g", "T", 0, 4)
    answer = await call_async(
        processor_invoke_broker_to_reset_offset.invoke_broker_to_reset_offset,
        header(0, force=False, queue_id=0, offset=offset),
    )
    assert offsets_in(answer) == {0: offset}
    assert parts.offsets.query("g", "T", 0) == offset


@pytest.mark.proves("Consumers", "offsets reset by time and to an offset, forward and backward, online and offline")
async def test_running_consumers_cannot_undo_it(parts, processor_invoke_broker_to_reset_offset, client):
    connection = client()
    parts.offsets.commit("g", "T", 0, 5)
    await call_async(processor_invoke_broker_to_reset_offset.invoke_broker_to_reset_offset, header(0))
    assert connection.sent == [], "its next pull tells it"
    assert not parts.offsets.commit("g", "T", 0, 5)
    assert parts.offsets.redirect("g", "T", 0, connection) == 0


async def test_without_force_nothing_goes_forward(parts, processor_invoke_broker_to_reset_offset, times):
    parts.offsets.commit("g", "T", 0, 4)
    parts.offsets.commit("g", "T", 1, 0)
    answer = await call_async(
        processor_invoke_broker_to_reset_offset.invoke_broker_to_reset_offset, header(times[0][2], force=False)
    )
    assert offsets_in(answer) == {0: 2}
    assert parts.offsets.offsets_of("g", "T") == {0: 2, 1: 0}
    code, remark = await refusal_async(
        processor_invoke_broker_to_reset_offset.invoke_broker_to_reset_offset, header(-1, force=False)
    )
    assert code == ResponseCode.SYSTEM_ERROR
    assert "set isForce=true to move it forward" in remark
    assert parts.offsets.offsets_of("g", "T") == {0: 2, 1: 0}


@pytest.mark.proves("Consumers", "a reset of an unknown group, or to an impossible offset, changes nothing")
@pytest.mark.parametrize(
    ("wrong", "code", "named"),
    [
        (header(topic="U"), ResponseCode.TOPIC_NOT_EXIST, "Topic U does not exist"),
        (header(topic="a/b"), ResponseCode.INVALID_PARAMETER, "the topic 'a/b' is illegal"),
        (header(group="h"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group h does not exist"),
        (header(group="../up"), ResponseCode.INVALID_PARAMETER, "The specified group"),
        (header(queue_id=2), ResponseCode.INVALID_PARAMETER, "QueueId 2 is illegal, topic T has queues 0 to 1"),
        (header(offset=3), ResponseCode.INVALID_PARAMETER, "set a queueId from 0 to 1"),
        (header(queue_id=0, offset=6), ResponseCode.SYSTEM_ERROR, "Target offset 6 not in consume queue range [0-5]"),
        (header(queue_id=0, offset=-2), ResponseCode.SYSTEM_ERROR, "Target offset -2 not in consume queue range"),
    ],
)
async def test_an_impossible_value_is_rejected_and_changes_nothing(
    parts, processor_invoke_broker_to_reset_offset, wrong, code, named
):
    found_code, remark = await refusal_async(
        processor_invoke_broker_to_reset_offset.invoke_broker_to_reset_offset, wrong
    )
    assert found_code == code
    assert named in remark
    assert parts.offsets.table == {}
    assert not parts.offsets.resets
    assert not parts.subscription_groups.contains("h")


async def test_a_topic_that_nobody_can_read(parts, processor_invoke_broker_to_reset_offset):
    parts.topic_configs.update(TopicConfig("T", 0, 2))
    code, remark = await refusal_async(processor_invoke_broker_to_reset_offset.invoke_broker_to_reset_offset, header())
    assert (code, "No queues to reset." in remark) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_failing_disk_is_reported(parts, store, times, encoder):
    async def drain():
        return {parts.offsets.path}

    reset = OffsetReset(
        parts.config, parts.offsets, PullRequestHoldService(parts.config), PopLongPollingService(parts.config), drain
    )
    code, remark = await refusal_async(make(parts, store, reset, encoder).invoke_broker_to_reset_offset, header())
    assert code == ResponseCode.SYSTEM_ERROR
    assert "valid until this process stops" in remark


@pytest.mark.parametrize("why", ["broadcasting", "setting"])
async def test_clients_are_notified_if_the_broker_cannot_reset(
    parts, processor_invoke_broker_to_reset_offset, client, why
):
    if why == "setting":
        apply_updates([parts.config], {"useServerSideResetOffset": "false"})
    model = MessageModel.BROADCASTING if why == "broadcasting" else MessageModel.CLUSTERING
    java, cpp = client("java", model=model), client("cpp", "CPP", model=model)
    java.sent.clear()  # of the other's coming
    answer = await call_async(
        processor_invoke_broker_to_reset_offset.invoke_broker_to_reset_offset, header(0, queue_id=0, offset=4)
    )
    assert offsets_in(answer) == {0: 4}
    (to_java,), (to_cpp,) = java.sent, cpp.sent
    assert to_java.code == to_cpp.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert isinstance(fastjson.loads(to_java.body)["offsetTable"], dict)
    assert isinstance(fastjson.loads(to_cpp.body)["offsetTable"], list)
    assert parts.offsets.table == {}


async def test_a_client_that_is_behind_is_named_and_not_notified(
    parts, processor_invoke_broker_to_reset_offset, client
):
    slow, quick = client("slow", model=MessageModel.BROADCASTING), client("quick", model=MessageModel.BROADCASTING)
    slow.send_oneway = lambda _command: False
    quick.sent.clear()
    answer = await call_async(
        processor_invoke_broker_to_reset_offset.invoke_broker_to_reset_offset, header(0, queue_id=0, offset=4)
    )
    assert answer.remark == "clients not notified because they read too slowly: slow"
    assert (len(slow.sent), len(quick.sent)) == (0, 1)


async def test_a_reset_of_many_queues_writes_one_line(parts, processor_invoke_broker_to_reset_offset, caplog):
    parts.topic_configs.update(TopicConfig("T", 16_384, 16_384))
    with caplog.at_level(logging.INFO):
        answer = await call_async(
            processor_invoke_broker_to_reset_offset.invoke_broker_to_reset_offset, header(-1, force=True)
        )
    assert len(offsets_in(answer)) == 16_384
    assert caplog.text.count("is reset in") < 20
    assert len(caplog.text) < 10_000


@pytest.mark.parametrize(
    ("clients", "code", "named"),
    [
        ([], ResponseCode.CONSUMER_NOT_ONLINE, "Consumer not online, so can not reset offset, Group: g Topic: T"),
        ([{"version": 27}], ResponseCode.SYSTEM_ERROR, "the client does not support this feature. version=27"),
        ([{"consume_type": ConsumeType.CONSUME_ACTIVELY}], ResponseCode.SYSTEM_ERROR, "pull by themselves"),
    ],
)
async def test_clients_that_cannot_be_notified(
    parts, processor_invoke_broker_to_reset_offset, client, clients, code, named
):
    apply_updates([parts.config], {"useServerSideResetOffset": "false"})
    connections = [client(**each) for each in clients]
    found_code, remark = await refusal_async(
        processor_invoke_broker_to_reset_offset.invoke_broker_to_reset_offset, header()
    )
    assert found_code == code
    assert named in remark
    assert all(connection.sent == [] for connection in connections)


async def test_recorded_requests_invoke_broker_to_reset_offset(parts, store, offset_reset, encoder):
    """mqadmin's requests, with queues that end where the recorded ones did."""
    seen = 0
    for command, theirs in recorded(222, ResetOffsetRequestHeader):
        parts.topic_configs.update(TopicConfig(command.header.topic, 4, 4))
        parts.subscription_groups.find(command.header.group)
        for queue_id, end in offsets_in(theirs).items():
            for _ in range(end - store.queues.max_offset_in_queue(command.header.topic, queue_id)):
                store.appender.put_message(message(topic=command.header.topic, queue_id=queue_id))
        store.appender.dispatch()
        at_end = msgspec.structs.replace(command.header, timestamp=-1)
        assert (
            await call_async(make(parts, store, offset_reset, encoder).invoke_broker_to_reset_offset, at_end) == theirs
        )
        seen += 1
    assert seen == 5


def make_clone_group_offset(parts, reset):
    return family(OffsetRequests, parts, reset=reset)


@pytest.fixture
def processor_clone_group_offset(parts, offset_reset):
    for topic in ("T", "U"):
        parts.topic_configs.update(TopicConfig(topic, 2, 2))
    for group in ("src", "dest"):
        parts.subscription_groups.find(group)
    for topic, queue_id, offset in (("T", 0, 7), ("T", 1, 8), ("U", 0, 9), ("Gone", 0, 1)):
        parts.offsets.commit("src", topic, queue_id, offset)
    parts.offsets.commit("dest", "T", 0, 100)
    return make_clone_group_offset(parts, offset_reset)


@pytest.mark.parametrize("offline", [True, False])
async def test_one_topic(parts, processor_clone_group_offset, offline):
    assert await call_async(processor_clone_group_offset.clone_group_offset, Header("src", "dest", "T", offline)) == (
        0,
        None,
        {},
        b"",
    )
    assert parts.offsets.offsets_of("dest", "T") == parts.offsets.offsets_of("src", "T") == {0: 7, 1: 8}
    assert parts.offsets.offsets_of("dest", "U") == {}


@pytest.mark.proves("Consumers", "offsets cloned, for a running group as well")
@pytest.mark.parametrize("topic", [None, ""])
async def test_all_topics_that_exist(parts, processor_clone_group_offset, topic):
    await call_async(processor_clone_group_offset.clone_group_offset, Header("src", "dest", topic))
    assert parts.offsets.topics_of("dest") == {"T", "U"}
    assert parts.offsets.offsets_of("dest", "U") == {0: 9}


async def test_topics_that_a_running_group_does_not_subscribe_to(parts, processor_clone_group_offset, consumer):
    consumer("src", "client", "T")
    code, remark = await refusal_async(processor_clone_group_offset.clone_group_offset, Header("src", "dest", "U"))
    assert (code, "no offsets to clone in topic U" in remark) == (ResponseCode.SYSTEM_ERROR, True)
    await call_async(processor_clone_group_offset.clone_group_offset, Header("src", "dest"))
    assert parts.offsets.topics_of("dest") == {"T"}
    await call_async(processor_clone_group_offset.clone_group_offset, Header("src", "dest", "U", offline=True))
    assert parts.offsets.offsets_of("dest", "U") == {0: 9}


@pytest.mark.proves("Consumers", "offsets cloned, for a running group as well")
async def test_a_running_group_is_moved(parts, processor_clone_group_offset, consumer):
    connection = consumer("dest", "client", "T")
    await call_async(processor_clone_group_offset.clone_group_offset, Header("src", "dest", "T"))
    assert not parts.offsets.commit("dest", "T", 0, 101)
    assert parts.offsets.redirect("dest", "T", 0, connection) == 7


@pytest.mark.parametrize("why", ["broadcasting", "setting"])
async def test_a_group_that_the_broker_does_not_reset_has_the_offsets_and_is_not_moved(
    parts, processor_clone_group_offset, consumer, why
):
    parts.offsets.assign_reset("dest", "T", 0, 3)
    model = MessageModel.BROADCASTING if why == "broadcasting" else MessageModel.CLUSTERING
    connection = consumer("dest", "client", "T", model=model)
    if why == "setting":
        apply_updates([parts.config], {"useServerSideResetOffset": "false"})
    await call_async(processor_clone_group_offset.clone_group_offset, Header("src", "dest", "T"))
    assert parts.offsets.offsets_of("dest", "T") == {0: 7, 1: 8}
    assert parts.offsets.redirect("dest", "T", 0, connection) is None
    assert parts.offsets.commit("dest", "T", 0, 101)


async def test_a_new_group_is_made_where_clients_may_make_one(parts, processor_clone_group_offset):
    await call_async(processor_clone_group_offset.clone_group_offset, Header("src", "new", "T"))
    assert parts.subscription_groups.contains("new")
    apply_updates([parts.config], {"autoCreateSubscriptionGroup": "false"})
    code, remark = await refusal_async(processor_clone_group_offset.clone_group_offset, Header("src", "newer", "T"))
    assert code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "autoCreateSubscriptionGroup is false" in remark


@pytest.mark.parametrize(
    ("wrong", "code", "named"),
    [
        (Header("src", "dest", "V"), ResponseCode.TOPIC_NOT_EXIST, "Topic V does not exist"),
        (Header("src", "dest", "a/b"), ResponseCode.INVALID_PARAMETER, "the topic 'a/b' is illegal"),
        (Header("nobody", "dest", "T"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group nobody does not exist"),
        (Header("../up", "dest", "T"), ResponseCode.INVALID_PARAMETER, "The specified group"),
        (Header("src", "../up", "T"), ResponseCode.INVALID_PARAMETER, "The specified group"),
        (Header("dest", "src", "U"), ResponseCode.SYSTEM_ERROR, "no offsets to clone in topic U"),
    ],
)
async def test_an_impossible_value_is_rejected_and_changes_nothing_clone_group_offset(
    parts, processor_clone_group_offset, wrong, code, named
):
    before = {key: dict(queues) for key, queues in parts.offsets.table.items()}
    found_code, remark = await refusal_async(processor_clone_group_offset.clone_group_offset, wrong)
    assert found_code == code
    assert named in remark
    assert parts.offsets.table == before


async def test_a_failing_disk_is_reported_clone_group_offset(parts, processor_clone_group_offset):
    async def drain():
        return {parts.offsets.path}

    refused = make_clone_group_offset(
        parts,
        OffsetReset(
            parts.config,
            parts.offsets,
            PullRequestHoldService(parts.config),
            PopLongPollingService(parts.config),
            drain,
        ),
    )
    code, remark = await refusal_async(refused.clone_group_offset, Header("src", "dest", "T"))
    assert (code, "valid until this process stops" in remark) == (ResponseCode.SYSTEM_ERROR, True)


MAX = 2**63 - 1


class Queues:
    """Queue 2 begins at 50."""

    def min_offset_in_queue(self, _topic, queue_id):
        return 50 if queue_id == 2 else 0

    def max_offset_in_queue(self, _topic, _queue_id):
        return 100


@pytest.fixture
def processor_query_correction_offset(parts):
    for group, offsets in {"slow": {0: 10, 1: 20, 2: 40}, "fast": {0: 90, 1: 15, 2: 60}, "far": {0: 5}}.items():
        for queue_id, offset in offsets.items():
            parts.offsets.commit(group, "T", queue_id, offset)
    return family(OffsetRequests, parts, queues=cast("ConsumeQueueStore", Queues()))


async def ask(processor_query_correction_offset, *fields):
    answer = await call_async(
        processor_query_correction_offset.query_correction_offset, HeaderQueryCorrectionOffset(*fields)
    )
    assert answer.code == 0
    return answer.body["correctionOffsets"]


@pytest.mark.parametrize(
    ("compare", "filtered", "expected"),
    [
        ("other", None, {0: 5, 1: 15, 2: 60}),
        ("other", "far", {0: 10, 1: 15, 2: 60}),
        ("other", "far,slow", {0: 90, 1: 15, 2: 60}),
        ("other", "far, slow", {0: 10, 1: 15, 2: 60}),
        ("far", "far", {0: MAX, 1: 15, 2: 60}),
        ("slow", "far,slow", {0: MAX, 1: 15, 2: MAX}),
    ],
)
async def test_the_least_offset_of_the_others(parts, processor_query_correction_offset, compare, filtered, expected):
    before = {key: dict(queues) for key, queues in parts.offsets.table.items()}
    assert await ask(processor_query_correction_offset, compare, "T", filtered) == expected
    assert parts.offsets.table == before, "asking changes nothing"


async def test_nothing_is_known_of_a_topic(processor_query_correction_offset):
    assert await ask(processor_query_correction_offset, "slow", "U") == {}


@pytest.mark.parametrize("wrong", [HeaderQueryCorrectionOffset("../up", "T"), HeaderQueryCorrectionOffset("g", "a/b")])
async def test_bad_names(processor_query_correction_offset, wrong):
    assert (await refusal_async(processor_query_correction_offset.query_correction_offset, wrong))[
        0
    ] == ResponseCode.INVALID_PARAMETER


async def test_recorded_questions(parts):
    processor_query_correction_offset = family(OffsetRequests, parts, queues=cast("ConsumeQueueStore", Queues()))
    for group in ("CG_Live", "CG_Push"):
        for queue_id in range(4):
            parts.offsets.commit(group, "GoldenTopic", queue_id, 50 * (queue_id == 2))
    seen = 0
    for command, theirs in recorded(308, HeaderQueryCorrectionOffset):
        ours = await call_async(processor_query_correction_offset.query_correction_offset, command.header)
        expected = {**theirs.body["correctionOffsets"], 2: 50}
        assert ours == theirs._replace(body={"correctionOffsets": expected})
        seen += 1
    assert seen == 3
