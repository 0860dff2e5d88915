import pytest

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.client import ConsumerData
from rocketbroker.codec.remoting.headers.message import GetConsumerStatusRequestHeader as Header
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RemotingTimeoutError
from rocketbroker.processor.admin.invoke_broker_to_get_consumer_status import InvokeBrokerToGetConsumerStatusProcessor
from tests.support.fakes import FakeClient
from tests.support.processor_calls import call_async, recorded, refusal_async

BODY = b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7}}'


@pytest.fixture
def processor(parts):
    return InvokeBrokerToGetConsumerStatusProcessor(parts.consumers)


@pytest.fixture
def client(parts):
    """Registers a client of group g that answers so, or fails to; gives what it is asked."""

    def register(name, answer, version=513):
        found = FakeClient(answer)
        parts.consumers.register(
            ClientChannelInfo(found, name, "JAVA", version, parts.clock.monotonic()), ConsumerData("g")
        )
        return found.asked

    return register


async def test_all_clients_are_asked_and_told_of(processor, client):
    one, two = client("one", response(body=BODY)), client("two", response(body=b'{"messageQueueTable":{}}'))
    answer = await call_async(processor.process, Header("T", "g"))
    assert (answer.code, answer.remark) == (0, None)
    assert answer.body["consumerTable"]["two"] == {}
    assert list(answer.body["consumerTable"]["one"].values()) == [7]
    for (command, timeout_s), *more in (one, two):
        assert (command.code, command.header) == (RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, Header("T", "g"))
        assert (timeout_s, more) == (5.0, [])


async def test_one_client_is_asked(processor, client):
    one, two = client("one", response(body=BODY)), client("two", response(body=BODY))
    answer = await call_async(processor.process, Header("T", "g", "two"))
    assert list(answer.body["consumerTable"]) == ["two"]
    assert (len(one), len(two)) == (0, 1)


async def test_clients_that_do_not_answer_are_named(processor, client):
    client("one", response(body=BODY))
    client("late", RemotingTimeoutError("no answer in 5 s"))
    client("odd", response(1, "no such group"))
    client("broken", response(body=b"{]"))
    answer = await call_async(processor.process, Header("T", "g"))
    assert answer.code == 0
    assert list(answer.body["consumerTable"]) == ["one"]
    assert answer.remark is not None
    for named in ("late: no answer in 5 s", "odd: code 1, no such group", "broken: JSON"):
        assert named in answer.remark
    code, remark = await refusal_async(processor.process, Header("T", "g", "late"))
    assert (code, "late: no answer in 5 s" in remark) == (ResponseCode.SYSTEM_ERROR, True)


@pytest.mark.parametrize(
    ("asked", "code", "named"),
    [
        (Header("T", "h"), ResponseCode.SYSTEM_ERROR, "No Any Consumer online in the consumer group: [h]"),
        (Header("T", "g", "two"), ResponseCode.SYSTEM_ERROR, "The Consumer <g> <two> not online"),
        (Header("T", "g", "old"), ResponseCode.SYSTEM_ERROR, "the client does not support this feature. version=27"),
        (Header("T", "../up"), ResponseCode.INVALID_PARAMETER, "The specified group"),
        (Header("a/b", "g"), ResponseCode.INVALID_PARAMETER, "the topic 'a/b' is illegal"),
    ],
)
async def test_an_impossible_value_is_named(processor, client, asked, code, named):
    client("old", response(body=BODY), version=27)
    found_code, remark = await refusal_async(processor.process, asked)
    assert found_code == code
    assert named in remark


async def test_recorded_questions_and_answers(parts, processor, client):
    """Return the client's answer to the broker (221) and the broker's to its caller (223)."""
    from_client = [theirs for _, theirs in recorded(221)]
    online = [(command, theirs) for command, theirs in recorded(223, Header) if not theirs.code]
    for told, (command, theirs) in zip(from_client, online, strict=True):
        (client_id,) = theirs.body["consumerTable"]
        body = fastjson.dumps({"messageQueueTable": told.body["messageQueueTable"]})
        asked = FakeClient(response(body=body))
        channel = ClientChannelInfo(asked, client_id, "JAVA", 513, parts.clock.monotonic())
        parts.consumers.register(channel, ConsumerData(command.header.group))
        ours = await call_async(processor.process, command.header)
        assert ours.body["consumerTable"] == theirs.body["consumerTable"]
        assert asked.asked[0][0].header == Header(command.header.topic, command.header.group)
        parts.consumers.close_connection(asked)
    assert len(online) == 2
