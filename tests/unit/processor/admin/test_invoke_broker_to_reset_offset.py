import logging

import msgspec
import pytest

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.offset.offset_reset import OffsetReset
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.client import ConsumerData, ConsumeType, MessageModel
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.message import ResetOffsetRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.processor.admin.invoke_broker_to_reset_offset import InvokeBrokerToResetOffsetProcessor
from tests.support.fakes import FakeConnection
from tests.support.processor_calls import call_async, recorded, refusal_async
from tests.support.stores import message


def make(parts, store, reset, encoder):
    return InvokeBrokerToResetOffsetProcessor(
        parts.config,
        parts.topic_configs,
        parts.subscription_groups,
        parts.consumers,
        parts.offsets,
        store.queues,
        store.queries,
        reset,
        encoder,
    )


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
def processor(parts, store, offset_reset, times, encoder):
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


@pytest.mark.parametrize(
    ("queue_id", "number", "later_ms", "expected"),
    [(0, 2, 0, 2), (0, 2, 1, 3), (0, 2, -1, 2), (0, 0, -10_000, 0), (0, 4, 0, 4), (0, 4, 1, 5), (1, 1, 0, 1)],
)
async def test_to_a_time_to_the_millisecond(parts, processor, times, queue_id, number, later_ms, expected):
    answer = await call_async(processor.process, header(times[queue_id][number] + later_ms, queue_id=queue_id))
    assert (answer.code, offsets_in(answer)) == (0, {queue_id: expected})
    assert parts.offsets.offsets_of("g", "T") == {queue_id: expected}


@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize(("timestamp", "expected"), [(-1, {0: 5, 1: 3}), (0, {0: 0, 1: 0})])
async def test_all_queues_forward_and_backward(parts, processor, start, timestamp, expected):
    for queue_id in (0, 1):
        parts.offsets.commit("g", "T", queue_id, start)
    answer = await call_async(processor.process, header(timestamp))
    assert offsets_in(answer) == expected
    assert parts.offsets.offsets_of("g", "T") == expected


async def test_to_a_time_whose_message_is_removed_while_it_is_looked_for(parts, processor, store, times, monkeypatch):
    find = store.queries.offset_in_queue_by_time

    async def find_and_remove(*arguments):
        found = await find(*arguments)
        queue = store.queues.find("T", 0)
        store.queues.correct_min_offsets(queue.entry(3)[0])
        return found

    monkeypatch.setattr(store.queries, "offset_in_queue_by_time", find_and_remove)
    answer = await call_async(processor.process, header(times[0][1], queue_id=0))
    assert offsets_in(answer) == {0: 3}


@pytest.mark.parametrize("offset", [0, 3, 5])
async def test_to_an_offset_whatever_is_forced(parts, processor, offset):
    parts.offsets.commit("g", "T", 0, 4)
    answer = await call_async(processor.process, header(0, force=False, queue_id=0, offset=offset))
    assert offsets_in(answer) == {0: offset}
    assert parts.offsets.query("g", "T", 0) == offset


async def test_running_consumers_cannot_undo_it(parts, processor, client):
    connection = client()
    parts.offsets.commit("g", "T", 0, 5)
    await call_async(processor.process, header(0))
    assert connection.sent == [], "its next pull tells it"
    assert not parts.offsets.commit("g", "T", 0, 5)
    assert parts.offsets.redirect("g", "T", 0, connection) == 0


async def test_without_force_nothing_goes_forward(parts, processor, times):
    parts.offsets.commit("g", "T", 0, 4)
    parts.offsets.commit("g", "T", 1, 0)
    answer = await call_async(processor.process, header(times[0][2], force=False))
    assert offsets_in(answer) == {0: 2}
    assert parts.offsets.offsets_of("g", "T") == {0: 2, 1: 0}
    code, remark = await refusal_async(processor.process, header(-1, force=False))
    assert code == ResponseCode.SYSTEM_ERROR
    assert "set isForce=true to move it forward" in remark
    assert parts.offsets.offsets_of("g", "T") == {0: 2, 1: 0}


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
async def test_an_impossible_value_is_rejected_and_changes_nothing(parts, processor, wrong, code, named):
    found_code, remark = await refusal_async(processor.process, wrong)
    assert found_code == code
    assert named in remark
    assert parts.offsets.table == {}
    assert not parts.offsets.resets
    assert not parts.subscription_groups.contains("h")


async def test_a_topic_that_nobody_can_read(parts, processor):
    parts.topic_configs.update(TopicConfig("T", 0, 2))
    code, remark = await refusal_async(processor.process, header())
    assert (code, "No queues to reset." in remark) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_failing_disk_is_reported(parts, store, times, encoder):
    async def drain():
        return {parts.offsets.path}

    reset = OffsetReset(parts.config, parts.offsets, PullRequestHoldService(parts.config), drain)
    code, remark = await refusal_async(make(parts, store, reset, encoder).process, header())
    assert code == ResponseCode.SYSTEM_ERROR
    assert "valid until this process stops" in remark


@pytest.mark.parametrize("why", ["broadcasting", "setting"])
async def test_clients_are_notified_if_the_broker_cannot_reset(parts, processor, client, why):
    if why == "setting":
        apply_updates([parts.config], {"useServerSideResetOffset": "false"})
    model = MessageModel.BROADCASTING if why == "broadcasting" else MessageModel.CLUSTERING
    java, cpp = client("java", model=model), client("cpp", "CPP", model=model)
    java.sent.clear()  # of the other's coming
    answer = await call_async(processor.process, header(0, queue_id=0, offset=4))
    assert offsets_in(answer) == {0: 4}
    (to_java,), (to_cpp,) = java.sent, cpp.sent
    assert to_java.code == to_cpp.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert isinstance(fastjson.loads(to_java.body)["offsetTable"], dict)
    assert isinstance(fastjson.loads(to_cpp.body)["offsetTable"], list)
    assert parts.offsets.table == {}


async def test_a_client_that_is_behind_is_named_and_not_notified(parts, processor, client):
    slow, quick = client("slow", model=MessageModel.BROADCASTING), client("quick", model=MessageModel.BROADCASTING)
    slow.send_oneway = lambda _command: False
    quick.sent.clear()
    answer = await call_async(processor.process, header(0, queue_id=0, offset=4))
    assert answer.remark == "clients not notified because they read too slowly: slow"
    assert (len(slow.sent), len(quick.sent)) == (0, 1)


async def test_a_reset_of_many_queues_writes_one_line(parts, processor, caplog):
    parts.topic_configs.update(TopicConfig("T", 16_384, 16_384))
    with caplog.at_level(logging.INFO):
        answer = await call_async(processor.process, header(-1, force=True))
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
async def test_clients_that_cannot_be_notified(parts, processor, client, clients, code, named):
    apply_updates([parts.config], {"useServerSideResetOffset": "false"})
    connections = [client(**each) for each in clients]
    found_code, remark = await refusal_async(processor.process, header())
    assert found_code == code
    assert named in remark
    assert all(connection.sent == [] for connection in connections)


async def test_recorded_requests(parts, store, offset_reset, encoder):
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
        assert await call_async(make(parts, store, offset_reset, encoder).process, at_end) == theirs
        seen += 1
    assert seen == 5
