from unittest.mock import Mock

import msgspec
import pytest

from rocketbroker.codec.message.message_id import create_message_id
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.admin import ConsumeMessageDirectlyResultRequestHeader
from rocketbroker.codec.remoting.remoting_command import response, to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.call_consumer import ConsumerCalls
from rocketbroker.processor.admin.consume_message_directly import ConsumeMessageDirectlyProcessor
from tests.support.golden_frames import exchanges
from tests.support.processor_calls import call_async, recorded, refusal_async
from tests.support.stores import V4_HOST, message, put_forged

Header = ConsumeMessageDirectlyResultRequestHeader


@pytest.fixture
def processor(parts, store):
    parts.topic_configs.update(TopicConfig("GoldenTopic"))
    return ConsumeMessageDirectlyProcessor(
        "broker-a",
        parts.topic_configs,
        parts.subscription_groups,
        ConsumerCalls(parts.config, parts.consumers),
        store.queries,
    )


@pytest.fixture
def client(parts, consumer):
    parts.subscription_groups.find("CG_Live")  # as its heartbeat does
    connection = consumer("CG_Live", "client", "GoldenTopic")
    connection.asked = []

    async def invoke(command, _timeout_s):
        connection.asked.append(command)
        return response(body=b'{"consumeResult":"CR_SUCCESS"}')

    connection.invoke = invoke
    return connection


async def test_the_client_gets_the_message_and_what_it_must_know(store, processor, client):
    result = store.appender.put_message(message(topic="GoldenTopic", body=b"hello"))
    store.appender.dispatch()
    msg_id = create_message_id(V4_HOST, result.physical_offset)
    header = Header("CG_Live", "client", msg_id, topic="GoldenTopic")
    answer = await call_async(processor.process, header)
    assert answer == (0, None, {}, {"consumeResult": "CR_SUCCESS"})
    (sent,) = client.asked
    assert sent.code == RequestCode.CONSUME_MESSAGE_DIRECTLY
    assert sent.body == store.commit_log.record(result.physical_offset)
    known = {"brokerName": "broker-a", "topicSysFlag": "0", "groupSysFlag": "0"}
    assert to_ext_fields(sent.header) == {**(to_ext_fields(header) or {}), **known}


async def test_recorded_requests_reach_the_client_with_the_same_fields(store, processor, client):
    """mqadmin asks the broker, the broker asks the client: both were recorded."""
    store.appender.put_message(message(topic="GoldenTopic"))
    store.appender.dispatch()
    asked = {
        exchange.request.conversation[1]: exchange.request.command().header
        for exchange in exchanges()
        if exchange.request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY
    }
    commands = [command for command, _ in recorded(309)]
    from_tool = next(command for command in commands if "brokerName" not in command.header)
    header = Header("CG_Live", "client", from_tool.header["msgId"], topic=from_tool.header["topic"])
    await call_async(processor.process, header)
    to_client = next(fields for fields in asked.values() if "brokerName" in fields)
    assert to_ext_fields(client.asked[-1].header) == to_client | {"clientId": "client"}


async def test_a_client_that_is_not_there(parts, store, processor):
    result = store.appender.put_message(message(topic="GoldenTopic"))
    store.appender.dispatch()
    header = Header("CG_Live", "nobody", create_message_id(V4_HOST, result.physical_offset))
    answer = await refusal_async(processor.process, header)
    assert answer == (ResponseCode.SYSTEM_ERROR, "The Consumer <CG_Live> <nobody> not online")
    assert not parts.subscription_groups.contains("CG_Live"), "a request that is refused makes no group"


async def test_no_client_gets_a_record_that_somebody_wrote_into_a_body(store, processor, client):
    result = store.appender.put_message(message(topic="GoldenTopic"))
    store.appender.dispatch()
    forged = put_forged(store, store.commit_log.record(result.physical_offset))

    code, remark = await refusal_async(
        processor.process, Header("CG_Live", "client", create_message_id(V4_HOST, forged), topic="GoldenTopic")
    )

    assert (code, remark) == (ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {forged}")
    assert client.asked == []


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"consumer_group": "../up"}, ResponseCode.INVALID_PARAMETER, "The specified group"),
        ({"msg_id": None}, ResponseCode.INVALID_PARAMETER, "msgId of the request: ''"),
        ({"msg_id": "xyz"}, ResponseCode.INVALID_PARAMETER, "msgId of the request: 'xyz'"),
        ({"msg_id": create_message_id(V4_HOST, 77)}, ResponseCode.SYSTEM_ERROR, "by the offset, 77"),
    ],
)
async def test_bad_requests_are_named(processor, client, fields, code, named):
    header = msgspec.structs.replace(Header("CG_Live", "client", topic="GoldenTopic"), **fields)
    found_code, remark = await refusal_async(processor.process, header)
    assert found_code == code
    assert named in remark
    assert client.asked == []


async def test_no_message_is_read_for_a_client_that_cannot_be_asked(parts, store, processor, client, monkeypatch):
    client.is_behind = True
    read = Mock()
    monkeypatch.setattr(store.queries, "queued_message", read)
    code, _ = await refusal_async(processor.process, Header("CG_Live", "client", create_message_id(V4_HOST, 0)))
    assert code == ResponseCode.SYSTEM_BUSY
    assert read.call_count == 0
