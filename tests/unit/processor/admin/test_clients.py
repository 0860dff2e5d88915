import asyncio
from unittest.mock import Mock

import msgspec
import pytest

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.codec.message.message_id import create_message_id
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.client import ConsumerData
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.admin import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import (
    GetConsumerStatusRequestHeader as HeaderInvokeBrokerToGetConsumerStatus,
)
from rocketbroker.codec.remoting.remoting_command import request, response, to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, RemotingSendError, RemotingTimeoutError
from rocketbroker.processor.admin.clients import ClientRequests, ConsumerCalls
from tests.support.fakes import FakeClient
from tests.support.golden_frames import exchanges
from tests.support.processor_calls import answered, call_async, family, recorded, refusal_async
from tests.support.stores import V4_HOST, message, put_forged


@pytest.fixture
def processor(parts, encoder):
    return family(ClientRequests, parts, encoder=encoder)


async def test_recorded_groups_without_clients(processor):
    offline = 0
    for command, theirs in recorded(203, GetConsumerConnectionListRequestHeader):
        if theirs.code:
            assert await call_async(processor.get_consumer_connection_list, command.header) == theirs
            offline += 1
    assert offline > 20


async def test_recorded_group_with_clients(consumer, processor):
    online = [each for each in recorded(203, GetConsumerConnectionListRequestHeader) if not each[1].code]
    command, theirs = next(each for each in online if each[0].header.consumer_group == "CG_Live")
    (client,) = theirs.body["connectionSet"]
    topics = sorted(theirs.body["subscriptionTable"])
    port = int(client["clientAddr"].rpartition(":")[2])
    consumer("CG_Live", client["clientId"], *topics, port=port, start=theirs.body["consumeFromWhere"])
    ours = await call_async(processor.get_consumer_connection_list, command.header)
    for table in (ours.body["subscriptionTable"], theirs.body["subscriptionTable"]):
        for subscription in table.values():
            subscription["subVersion"] = 0
    assert ours == theirs


@pytest.mark.parametrize("group", ["../up", ""])
async def test_bad_names_are_named(processor, group):
    code, remark = await refusal_async(
        processor.get_consumer_connection_list, GetConsumerConnectionListRequestHeader(group)
    )
    assert code == ResponseCode.INVALID_PARAMETER
    assert "The specified group" in remark


@pytest.mark.proves(
    "Consumers",
    "clients of one group that subscribe to different things are named in the log, counted, and shown by "
    "`consumerStatus`",
)
async def test_clients_that_disagree_are_named_in_the_remark(consumer, processor):
    header = GetConsumerConnectionListRequestHeader("CG")
    consumer("CG", "one", "T", port=50001)
    assert (await call_async(processor.get_consumer_connection_list, header)).remark is None
    consumer("CG", "two", "T", "U", port=50002)
    answer = await call_async(processor.get_consumer_connection_list, header)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.remark is not None
    assert "of topic U one wants nothing and two wants *" in answer.remark
    assert len(answer.body["connectionSet"]) == 2


async def test_recorded_requests(parts, producer, encoder):
    processor = family(ClientRequests, parts, encoder=encoder)
    (command, offline), (again, online) = recorded(204, GetProducerConnectionListRequestHeader)
    assert await call_async(processor.get_producer_connection_list, command.header) == offline
    (client,) = online.body["connectionSet"]
    producer("PG_Live", client["clientId"], port=int(client["clientAddr"].rpartition(":")[2]))
    assert await call_async(processor.get_producer_connection_list, again.header) == online


@pytest.mark.parametrize("group", ["../up", ""])
async def test_bad_names_are_named_get_producer_connection_list(parts, group, encoder):
    processor = family(ClientRequests, parts, encoder=encoder)
    code, remark = await refusal_async(
        processor.get_producer_connection_list, GetProducerConnectionListRequestHeader(group)
    )
    assert code == ResponseCode.INVALID_PARAMETER
    assert "The specified group" in remark


async def test_recorded_answers(parts, producer, encoder):
    processor = family(ClientRequests, parts, encoder=encoder)
    assert (await call_async(processor.get_all_producer_info)).body == {"data": {}}
    _, theirs = max(recorded(328), key=lambda each: len(str(each[1].body)))
    clients = {info["clientId"]: info for group in theirs.body["data"].values() for info in group}
    for info in sorted(clients.values(), key=lambda info: info["lastUpdateTimestamp"]):
        parts.clock.advance((info["lastUpdateTimestamp"] - parts.clock.time_ms()) / 1000)
        for group, members in theirs.body["data"].items():
            if any(member["clientId"] == info["clientId"] for member in members):
                producer(group, info["clientId"], port=int(info["remoteIP"].rpartition(":")[2]))
    parts.clock.advance(12.5)

    ours = await call_async(processor.get_all_producer_info)

    for answer in (ours, theirs):
        for members in answer.body["data"].values():
            members.sort(key=lambda info: info["clientId"])
    assert ours == theirs
    assert len(clients) == 3


@pytest.fixture
def calls(parts):
    return ConsumerCalls(parts.config, parts.consumers)


async def test_a_consumer_that_does_not_answer_is_asked_a_few_things_at_a_time(consumer, calls):
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    silent, other = consumer("g", "silent"), consumer("g", "other")
    asked = []

    async def invoke(command, _timeout_s):
        asked.append(command)
        return await asyncio.shield(answer)

    async def answer_at_once(_command, _timeout_s):
        return response()

    silent.invoke, other.invoke = invoke, answer_at_once

    def call(client_id):
        return calls.call("g", client_id, request(RequestCode.CONSUME_MESSAGE_DIRECTLY, body=bytes(1 << 20)))

    waiting = [asyncio.ensure_future(call("silent")) for _ in range(600)]
    refused, _ = await asyncio.wait(waiting, timeout=0.01)
    assert (len(asked), len(refused)) == (16, 584)
    error = refused.pop().exception()
    assert isinstance(error, BrokerResponseError)
    assert error.code == ResponseCode.SYSTEM_BUSY
    assert error.remark.startswith("maxCallsPerConsumer: consumer <g> <silent> has not answered 16 requests yet")
    assert (await call("other")).code == ResponseCode.SUCCESS
    answer.set_result(response())
    await asyncio.wait(waiting)
    assert not calls._under_way
    assert (await call("silent")).code == ResponseCode.SUCCESS


async def test_a_consumer_that_is_behind_is_not_asked(consumer, calls):
    consumer("g", "slow").is_behind = True
    with pytest.raises(BrokerResponseError) as error:
        await calls.call("g", "slow", request(RequestCode.GET_CONSUMER_RUNNING_INFO))
    assert error.value.code == ResponseCode.SYSTEM_BUSY
    assert "writeBufferHighWaterMark" in error.value.remark


HEADER = GetConsumerRunningInfoRequestHeader("CG_Live", "client")


@pytest.fixture
def processor_get_consumer_running_info(parts):
    return family(ClientRequests, calls=ConsumerCalls(parts.config, parts.consumers))


def answers(connection, answer):
    """Let a client answer or fail; return the requests it got."""
    asked = []

    async def invoke(command, timeout_s):
        asked.append((command, timeout_s))
        if isinstance(answer, Exception):
            raise answer
        return answer

    connection.invoke = invoke
    return asked


@pytest.mark.proves("Consumers", "GET_CONSUMER_RUNNING_INFO, CONSUME_MESSAGE_DIRECTLY, relayed")
async def test_recorded_requests_are_passed_on(parts, consumer, processor_get_consumer_running_info):
    online = offline = 0
    for command, theirs in recorded(307, GetConsumerRunningInfoRequestHeader):
        header = command.header
        if theirs.code:
            code, remark = await refusal_async(processor_get_consumer_running_info.get_consumer_running_info, header)
            offline += (code, remark) == (theirs.code, theirs.remark)
            continue
        connection = consumer(header.consumer_group, header.client_id, "GoldenTopic")
        asked = answers(connection, response(theirs.code, theirs.remark, theirs.fields, b"raw"))
        ours = await call_async(processor_get_consumer_running_info.get_consumer_running_info, header)
        assert ours == (theirs.code, theirs.remark, theirs.fields, b"raw")
        ((sent, timeout_s),) = asked
        assert (sent.code, sent.header) == (RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        assert timeout_s == 10.0
        parts.consumers.close_connection(connection)
        online += 1
    assert online > 5
    assert offline >= 1


async def test_the_answer_of_the_client_comes_back_as_it_is(consumer, processor_get_consumer_running_info):
    answer = response(1, "sorry", {"a": "b"}, b'{"jstack":"..."}')
    answers(consumer("CG_Live", "client", "T"), answer)
    assert await call_async(processor_get_consumer_running_info.get_consumer_running_info, HEADER) == answered(answer)


@pytest.mark.parametrize(
    ("error", "code", "named"),
    [
        (RemotingTimeoutError("no answer in 10 s"), ResponseCode.CONSUME_MSG_TIMEOUT, "Timeout: no answer in 10 s"),
        (RemotingSendError("gone"), ResponseCode.SYSTEM_ERROR, "Exception: gone"),
    ],
)
async def test_a_client_that_does_not_answer(consumer, processor_get_consumer_running_info, error, code, named):
    answers(consumer("CG_Live", "client", "T"), error)
    found_code, remark = await refusal_async(processor_get_consumer_running_info.get_consumer_running_info, HEADER)
    assert found_code == code
    assert "consumer <CG_Live> <client>" in remark
    assert named in remark


async def test_bad_group(processor_get_consumer_running_info):
    code, remark = await refusal_async(
        processor_get_consumer_running_info.get_consumer_running_info, GetConsumerRunningInfoRequestHeader("../up", "c")
    )
    assert code == ResponseCode.INVALID_PARAMETER
    assert "The specified group" in remark


Header = ConsumeMessageDirectlyResultRequestHeader


@pytest.fixture
def processor_consume_message_directly(parts, store):
    parts.topic_configs.update(TopicConfig("GoldenTopic"))
    return family(
        ClientRequests,
        parts,
        broker_name="broker-a",
        calls=ConsumerCalls(parts.config, parts.consumers),
        queries=store.queries,
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


async def test_the_client_gets_the_message_and_what_it_must_know(store, processor_consume_message_directly, client):
    result = store.appender.put_message(message(topic="GoldenTopic", body=b"hello"))
    store.appender.dispatch()
    msg_id = create_message_id(V4_HOST, result.physical_offset)
    header = Header("CG_Live", "client", msg_id, topic="GoldenTopic")
    answer = await call_async(processor_consume_message_directly.consume_message_directly, header)
    assert answer == (0, None, {}, {"consumeResult": "CR_SUCCESS"})
    (sent,) = client.asked
    assert sent.code == RequestCode.CONSUME_MESSAGE_DIRECTLY
    assert sent.body == store.commit_log.record(result.physical_offset)
    known = {"brokerName": "broker-a", "topicSysFlag": "0", "groupSysFlag": "0"}
    assert to_ext_fields(sent.header) == {**(to_ext_fields(header) or {}), **known}


@pytest.mark.proves("Consumers", "GET_CONSUMER_RUNNING_INFO, CONSUME_MESSAGE_DIRECTLY, relayed")
async def test_recorded_requests_reach_the_client_with_the_same_fields(
    store, processor_consume_message_directly, client
):
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
    await call_async(processor_consume_message_directly.consume_message_directly, header)
    to_client = next(fields for fields in asked.values() if "brokerName" in fields)
    assert to_ext_fields(client.asked[-1].header) == to_client | {"clientId": "client"}


async def test_a_client_that_is_not_there(parts, store, processor_consume_message_directly):
    result = store.appender.put_message(message(topic="GoldenTopic"))
    store.appender.dispatch()
    header = Header("CG_Live", "nobody", create_message_id(V4_HOST, result.physical_offset))
    answer = await refusal_async(processor_consume_message_directly.consume_message_directly, header)
    assert answer == (ResponseCode.SYSTEM_ERROR, "The Consumer <CG_Live> <nobody> not online")
    assert not parts.subscription_groups.contains("CG_Live"), "a request that is refused makes no group"


async def test_no_client_gets_a_record_that_somebody_wrote_into_a_body(
    store, processor_consume_message_directly, client
):
    result = store.appender.put_message(message(topic="GoldenTopic"))
    store.appender.dispatch()
    forged = put_forged(store, store.commit_log.record(result.physical_offset))

    code, remark = await refusal_async(
        processor_consume_message_directly.consume_message_directly,
        Header("CG_Live", "client", create_message_id(V4_HOST, forged), topic="GoldenTopic"),
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
async def test_bad_requests_are_named(processor_consume_message_directly, client, fields, code, named):
    header = msgspec.structs.replace(Header("CG_Live", "client", topic="GoldenTopic"), **fields)
    found_code, remark = await refusal_async(processor_consume_message_directly.consume_message_directly, header)
    assert found_code == code
    assert named in remark
    assert client.asked == []


async def test_no_message_is_read_for_a_client_that_cannot_be_asked(
    parts, store, processor_consume_message_directly, client, monkeypatch
):
    client.is_behind = True
    read = Mock()
    monkeypatch.setattr(store.queries, "queued_message", read)
    code, _ = await refusal_async(
        processor_consume_message_directly.consume_message_directly,
        Header("CG_Live", "client", create_message_id(V4_HOST, 0)),
    )
    assert code == ResponseCode.SYSTEM_BUSY
    assert read.call_count == 0


BODY = b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7}}'


@pytest.fixture
def processor_invoke_broker_to_get_consumer_status(parts):
    return family(ClientRequests, parts)


@pytest.fixture
def client_invoke_broker_to_get_consumer_status(parts):
    """Registers a client of group g that answers so, or fails to; gives what it is asked."""

    def register(name, answer, version=513):
        found = FakeClient(answer)
        parts.consumers.register(
            ClientChannelInfo(found, name, "JAVA", version, parts.clock.monotonic()), ConsumerData("g")
        )
        return found.asked

    return register


async def test_all_clients_are_asked_and_told_of(
    processor_invoke_broker_to_get_consumer_status, client_invoke_broker_to_get_consumer_status
):
    one, two = (
        client_invoke_broker_to_get_consumer_status("one", response(body=BODY)),
        client_invoke_broker_to_get_consumer_status("two", response(body=b'{"messageQueueTable":{}}')),
    )
    answer = await call_async(
        processor_invoke_broker_to_get_consumer_status.invoke_broker_to_get_consumer_status,
        HeaderInvokeBrokerToGetConsumerStatus("T", "g"),
    )
    assert (answer.code, answer.remark) == (0, None)
    assert answer.body["consumerTable"]["two"] == {}
    assert list(answer.body["consumerTable"]["one"].values()) == [7]
    for (command, timeout_s), *more in (one, two):
        assert (command.code, command.header) == (
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            HeaderInvokeBrokerToGetConsumerStatus("T", "g"),
        )
        assert (timeout_s, more) == (5.0, [])


async def test_one_client_is_asked(
    processor_invoke_broker_to_get_consumer_status, client_invoke_broker_to_get_consumer_status
):
    one, two = (
        client_invoke_broker_to_get_consumer_status("one", response(body=BODY)),
        client_invoke_broker_to_get_consumer_status("two", response(body=BODY)),
    )
    answer = await call_async(
        processor_invoke_broker_to_get_consumer_status.invoke_broker_to_get_consumer_status,
        HeaderInvokeBrokerToGetConsumerStatus("T", "g", "two"),
    )
    assert list(answer.body["consumerTable"]) == ["two"]
    assert (len(one), len(two)) == (0, 1)


async def test_clients_that_do_not_answer_are_named(
    processor_invoke_broker_to_get_consumer_status, client_invoke_broker_to_get_consumer_status
):
    client_invoke_broker_to_get_consumer_status("one", response(body=BODY))
    client_invoke_broker_to_get_consumer_status("late", RemotingTimeoutError("no answer in 5 s"))
    client_invoke_broker_to_get_consumer_status("odd", response(1, "no such group"))
    client_invoke_broker_to_get_consumer_status("broken", response(body=b"{]"))
    answer = await call_async(
        processor_invoke_broker_to_get_consumer_status.invoke_broker_to_get_consumer_status,
        HeaderInvokeBrokerToGetConsumerStatus("T", "g"),
    )
    assert answer.code == 0
    assert list(answer.body["consumerTable"]) == ["one"]
    assert answer.remark is not None
    for named in ("late: no answer in 5 s", "odd: code 1, no such group", "broken: JSON"):
        assert named in answer.remark
    code, remark = await refusal_async(
        processor_invoke_broker_to_get_consumer_status.invoke_broker_to_get_consumer_status,
        HeaderInvokeBrokerToGetConsumerStatus("T", "g", "late"),
    )
    assert (code, "late: no answer in 5 s" in remark) == (ResponseCode.SYSTEM_ERROR, True)


@pytest.mark.parametrize(
    ("asked", "code", "named"),
    [
        (
            HeaderInvokeBrokerToGetConsumerStatus("T", "h"),
            ResponseCode.SYSTEM_ERROR,
            "No Any Consumer online in the consumer group: [h]",
        ),
        (
            HeaderInvokeBrokerToGetConsumerStatus("T", "g", "two"),
            ResponseCode.SYSTEM_ERROR,
            "The Consumer <g> <two> not online",
        ),
        (
            HeaderInvokeBrokerToGetConsumerStatus("T", "g", "old"),
            ResponseCode.SYSTEM_ERROR,
            "the client does not support this feature. version=27",
        ),
        (HeaderInvokeBrokerToGetConsumerStatus("T", "../up"), ResponseCode.INVALID_PARAMETER, "The specified group"),
        (
            HeaderInvokeBrokerToGetConsumerStatus("a/b", "g"),
            ResponseCode.INVALID_PARAMETER,
            "the topic 'a/b' is illegal",
        ),
    ],
)
async def test_an_impossible_value_is_named(
    processor_invoke_broker_to_get_consumer_status, client_invoke_broker_to_get_consumer_status, asked, code, named
):
    client_invoke_broker_to_get_consumer_status("old", response(body=BODY), version=27)
    found_code, remark = await refusal_async(
        processor_invoke_broker_to_get_consumer_status.invoke_broker_to_get_consumer_status, asked
    )
    assert found_code == code
    assert named in remark


async def test_recorded_questions_and_answers(
    parts, processor_invoke_broker_to_get_consumer_status, client_invoke_broker_to_get_consumer_status
):
    """Return the client's answer to the broker (221) and the broker's to its caller (223)."""
    from_client = [theirs for _, theirs in recorded(221)]
    online = [
        (command, theirs) for command, theirs in recorded(223, HeaderInvokeBrokerToGetConsumerStatus) if not theirs.code
    ]
    for told, (command, theirs) in zip(from_client, online, strict=True):
        (client_id,) = theirs.body["consumerTable"]
        body = fastjson.dumps({"messageQueueTable": told.body["messageQueueTable"]})
        asked = FakeClient(response(body=body))
        channel = ClientChannelInfo(asked, client_id, "JAVA", 513, parts.clock.monotonic())
        parts.consumers.register(channel, ConsumerData(command.header.group))
        ours = await call_async(
            processor_invoke_broker_to_get_consumer_status.invoke_broker_to_get_consumer_status, command.header
        )
        assert ours.body["consumerTable"] == theirs.body["consumerTable"]
        assert asked.asked[0][0].header == HeaderInvokeBrokerToGetConsumerStatus(
            command.header.topic, command.header.group
        )
        parts.consumers.close_connection(asked)
    assert len(online) == 2
