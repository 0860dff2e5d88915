import asyncio

import msgspec
import pytest

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import decode_properties
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.remoting_command import response, to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import RemotingSendError, RemotingTimeoutError
from rocketbroker.processor.send_reply_message import SendReplyMessageProcessor
from rocketbroker.processor.support.put_answers import MessagePuts
from rocketbroker.processor.support.topic_target import TopicTargets
from tests.support.fakes import FakeClient, FakeConnection
from tests.support.golden_frames import exchanges
from tests.support.processor_calls import call_async, decoded, refusal_async

TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01asker\x02TTL\x0112000\x02CORRELATION_ID\x01c-1\x02"


@pytest.fixture
def processor(parts, store):
    return make(parts, store)


def make(parts, store):
    targets = TopicTargets(parts.config, parts.topic_configs, parts.stats, parts.clock)
    return SendReplyMessageProcessor(
        parts.config,
        MessagePuts.of(store),
        targets,
        parts.producers,
        parts.clock,
    )


@pytest.fixture
def asker(parts):
    """A producer that is answered so, or fails to take the answer; gives what it is sent."""

    def register(answer=None, client_id="asker"):
        client = FakeClient(answer or response())
        parts.producers.register("PG_Asker", ClientChannelInfo(client, client_id, "JAVA", 513, parts.clock.monotonic()))
        return client.asked

    return register


def header(**fields):
    values = SendMessageRequestHeader("PG_Reply", TOPIC, "TBW102", 4, 0, 1, 1234, 5, PROPERTIES)
    return msgspec.structs.replace(values, **fields)


def stored(store):
    store.appender.dispatch()
    return store.queues.max_offset_in_queue(TOPIC, 0)


async def test_the_reply_reaches_the_requester_and_is_stored(parts, store, processor, asker):
    pushed = asker()
    sender = FakeConnection("127.0.0.1:40000")
    sender.remote_host = host_bytes("127.0.0.1", 40000)
    answer = await call_async(processor.send_reply_message, header(), b"pong", sender)
    assert (answer.code, answer.remark) == (0, None)
    assert answer.fields == {
        "msgId": "7F00000100002A9F0000000000000000",
        "queueId": "0",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    ((command, timeout_s),) = pushed
    assert (command.code, bytes(command.body)) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"pong")
    assert timeout_s == 10.0
    told = to_ext_fields(command.header) or {}
    now = str(parts.clock.time_ms())
    known = {
        "producerGroup": "PG_Reply",
        "topic": TOPIC,
        "sysFlag": "1",
        "flag": "5",
        "bornTimestamp": "1234",
        "bornHost": "127.0.0.1:40000",
        "storeHost": "127.0.0.1:10911",
        "storeTimestamp": now,
    }
    assert told.items() >= known.items()
    own = decode_properties(PROPERTIES.encode()) | {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert decode_properties(told["properties"].encode()) == own | {"PUSH_REPLY_TIME": now}
    assert stored(store) == 1, "it can be read at once"
    record = decode_record(store.commit_log.record(0), decompress=False)
    assert (record.topic, record.body, record.properties) == (TOPIC, b"pong", own)


async def test_replies_are_not_stored_where_that_is_off(parts, store, processor, asker):
    apply_updates([parts.config], {"storeReplyMessageEnable": "false"})
    pushed = asker()
    answer = await call_async(processor.send_reply_message, header(), b"pong")
    assert (answer.code, answer.fields["msgId"], answer.fields["queueOffset"]) == (0, "0", "0")
    assert len(pushed) == 1
    assert stored(store) == 0


@pytest.mark.parametrize(
    ("properties", "answer", "named"),
    [
        ("MSG_TYPE\x01reply\x02", None, "reply message properties[REPLY_TO_CLIENT] is null"),
        (
            "REPLY_TO_CLIENT\x01nobody\x02",
            None,
            "push reply message fail, channel of <nobody> not found.",
        ),
        (PROPERTIES, RemotingTimeoutError("no answer in 10 s"), "push reply message to asker fail: no answer in 10 s"),
        (PROPERTIES, RemotingSendError("gone"), "push reply message to asker fail: gone"),
        (PROPERTIES, response(1, "what?"), "push reply message to asker fail: code 1, what?"),
    ],
)
async def test_a_reply_that_reaches_nobody_leaves_nothing_behind(store, processor, asker, properties, answer, named):
    asker(answer)
    code, remark = await refusal_async(processor.send_reply_message, header(properties=properties), b"pong")
    assert (code, remark) == (ResponseCode.SYSTEM_ERROR, named)
    assert stored(store) == 0


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "Unknown", "default_topic": "None"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
    ],
)
async def test_topics_and_queues_are_checked_before_it_is_passed_on(processor, asker, fields, code):
    pushed = asker()
    assert (await refusal_async(processor.send_reply_message, header(**fields), b"pong"))[0] == code
    assert pushed == []


async def test_replies_do_not_wait_for_each_other(processor):
    route = Route(RequestCode.SEND_REPLY_MESSAGE, processor.send_reply_message, SendMessageRequestHeader)
    assert not route.runs_later, "requests that run later take turns"


async def test_nothing_is_written_to_who_does_not_take_it(parts, store, processor, asker):
    pushed = asker()
    parts.producers.find_channel("asker").is_behind = True
    code, remark = await refusal_async(processor.send_reply_message, header(), b"pong")
    assert (code, remark) == (
        ResponseCode.SYSTEM_ERROR,
        "push reply message to asker fail: it reads its connection too slowly",
    )
    assert pushed == []
    assert stored(store) == 0


async def test_any_queue_for_a_negative_number(parts, processor, asker):
    asker()
    parts.topic_configs.update(TopicConfig("Replies", 4, 4))
    answer = await call_async(processor.send_reply_message, header(topic="Replies", queue_id=-1), b"pong")
    assert 0 <= int(answer.fields["queueId"]) < 4


async def test_a_reply_has_arrived_though_the_store_refuses_it(store, processor, asker, caplog):
    pushed = asker()
    properties = PROPERTIES + "x\x01" + "y" * 32_767 + "\x02"
    answer = await call_async(processor.send_reply_message, header(properties=properties), b"pong")
    assert (answer.code, answer.fields["msgId"]) == (0, "0")
    assert len(pushed) == 1
    assert (
        "reply passed on, but not stored in topic DefaultCluster_REPLY_TOPIC: [PROPERTIES_SIZE_EXCEEDED]" in caplog.text
    )


async def test_the_answer_waits_for_the_disk(parts, sync_store, asker):
    asker()
    async with asyncio.timeout(60):
        answer = await call_async(make(parts, sync_store).send_reply_message, header(), b"pong")
    assert answer.fields["msgId"] == "7F00000100002A9F0000000000000000"
    assert sync_store.flusher.flushed_offset == sync_store.commit_log.max_offset


async def test_recorded_replies(parts, processor, asker):
    """Replies in both forms and encodings, and what the recorded broker passed on and answered."""
    replies = [each for each in exchanges() if each.request.code in {324, 325}]
    passed_on = {
        fields["bornTimestamp"]: fields
        for fields in (each.request.command().header for each in exchanges() if each.request.code == 326)
    }
    assert len(replies) > len(passed_on) > 5
    for exchange in replies:
        form = SendMessageRequestHeader if exchange.request.code == 324 else SendMessageRequestHeaderV2
        command = decoded(exchange.request, form)
        theirs = passed_on.get(str(command.header.born_timestamp))
        assert exchange.response is not None
        recorded_answer = exchange.response.command()
        if theirs is None:
            code, remark = await refusal_async(processor.send_reply_message, command.header, command.body)
            assert (code, remark) == (recorded_answer.code, recorded_answer.remark)
            continue
        properties = decode_properties(theirs["properties"].encode())
        pushed = asker(client_id=properties["REPLY_TO_CLIENT"])
        connection = FakeConnection()
        connection.remote_host = host_bytes("127.0.0.1", int(theirs["bornHost"].rpartition(":")[2]))
        answer = await call_async(processor.send_reply_message, command.header, command.body, connection)
        assert (answer.code, answer.remark) == (recorded_answer.code, recorded_answer.remark)
        assert answer.fields.keys() == recorded_answer.header.keys()
        ours = to_ext_fields(pushed[0][0].header) or {}
        assert ours.keys() == theirs.keys()
        for differing in ("storeTimestamp", "storeHost", "properties"):
            theirs.pop(differing)
        assert ours.items() >= theirs.items()
        sent = decode_properties(ours["properties"].encode())
        assert sent.keys() == properties.keys()
        assert {**sent, "PUSH_REPLY_TIME": ""} == {**properties, "PUSH_REPLY_TIME": ""}
        parts.producers.close_connection(parts.producers.find_channel(properties["REPLY_TO_CLIENT"]))


async def test_a_reply_with_too_many_keys_is_rejected_before_it_is_passed_on(store, processor, asker):
    pushed = asker()
    properties = PROPERTIES + "KEYS\x01" + " ".join(["k"] * 129) + "\x02"

    code, remark = await refusal_async(processor.send_reply_message, header(properties=properties), b"pong")

    assert (code, remark[:28]) == (ResponseCode.MESSAGE_ILLEGAL, "maxKeysPerMessage: 129 keys ")
    assert list(pushed) == []
    assert stored(store) == 0


async def test_a_reply_that_is_too_long_is_rejected_before_it_is_passed_on(store, processor, asker):
    asked = asker()
    limit = store.config.max_message_size

    code, remark = await refusal_async(processor.send_reply_message, header(), bytes(limit + 1))

    assert (code, asked) == (ResponseCode.MESSAGE_ILLEGAL, [])
    assert f"{limit + 1:,} bytes, above the limit of {limit:,}" in remark
