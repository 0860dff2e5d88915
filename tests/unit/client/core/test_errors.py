"""Errors for answers, and servers that do not answer as they should."""

import pickle
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rocketbroker.client.consumer.pull_consumer import PullConsumer
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import (
    BrokerAnswerError,
    NameServerError,
    NoPermissionError,
    SystemBusyError,
    broker_error,
)
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError, RemoteProtocolError, RemotingConnectError
from tests.support.scripted_server import Script, ScriptedServer, name_server, route_of

# Those of controllers, and of Java's own RPC layer, never reach a client.
MANUAL = (Path(__file__).parents[4] / "docs" / "reference" / "client.md").read_text().splitlines()
ANSWERS = [code for code in ResponseCode if code > 0 and not code.name.startswith("CONTROLLER_")]


@pytest.mark.parametrize("code", ANSWERS)
def test_each_answer_has_a_hint_which_the_manual_lists(code: ResponseCode):
    error = broker_error(int(code), "the remark")
    assert isinstance(error, BrokerAnswerError)
    kind = "" if type(error) is BrokerAnswerError else f"`{type(error).__name__}`"
    assert f"| {code.name} | {kind} | {'yes' if error.retriable else ''} | {error.hint} |" in MANUAL
    assert (error.code, error.remark) == (code, "the remark")
    assert str(error) == f"CODE: {int(code)}  DESC: the remark"
    assert error.__notes__ == [f"{code.name}: {error.hint}"]


def test_an_unknown_code_is_a_plain_error():
    error = broker_error(4711, None)
    assert type(error) is BrokerResponseError
    assert (error.code, error.remark) == (4711, "")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ResponseCode.NO_PERMISSION, NoPermissionError),
        (ResponseCode.SYSTEM_BUSY, SystemBusyError),
        (ResponseCode.GO_AWAY, BrokerAnswerError),
    ],
)
async def test_a_refusal_is_raised_by_its_class(code: int, kind: type[BrokerAnswerError]):
    refuse: Script = lambda _fields, _body: response(code, "refused")  # noqa: E731
    async with AsyncExitStack() as stack:
        broker = ScriptedServer({RequestCode.SEND_MESSAGE_V2: refuse, RequestCode.PULL_MESSAGE: refuse})
        await stack.enter_async_context(broker)
        names = await stack.enter_async_context(name_server({"T": route_of({"broker-a": broker.address})}))
        producer = await stack.enter_async_context(Producer("PG", names.address))
        consumer = await stack.enter_async_context(PullConsumer("CG", names.address))
        queue = MessageQueue("T", "broker-a", 0)
        with pytest.raises(kind, match="refused"):
            await producer.send(Message("T", b"body"), queue)
        with pytest.raises(kind, match="refused"):
            await consumer.pull(queue, 0)
        with pytest.raises(BrokerResponseError):
            await consumer.max_offset(queue)


async def test_a_broker_that_cannot_be_reached_is_named_with_its_setting():
    async with name_server({"T": route_of({"broker-a": "127.0.0.1:1"})}) as names:
        queue = MessageQueue("T", "broker-a", 0)
        text = r"connect to 127\.0\.0\.1:1 failed.*broker broker-a advertised this address.*brokerIP1"
        async with Producer("PG", names.address) as producer, PullConsumer("CG", names.address) as consumer:
            with pytest.raises(RemotingConnectError, match=text):
                await producer.send(Message("T", b"body"), queue)
            with pytest.raises(RemotingConnectError, match=text):
                await consumer.pull(queue, 0)
            with pytest.raises(RemotingConnectError, match=text):
                await consumer.max_offset(queue)


async def test_a_second_port_that_does_not_listen_is_named_with_its_setting():
    async with name_server({"T": route_of({"broker-a": "127.0.0.1:3"})}) as names:
        config = ClientConfig(names.address, vip_channel_enabled=True)
        async with Producer("PG", config) as producer:
            text = r"connect to 127\.0\.0\.1:1 failed.*second port of broker broker-a.*set vip_channel_enabled=False"
            with pytest.raises(RemotingConnectError, match=text):
                await producer.send(Message("T", b"body"), MessageQueue("T", "broker-a", 0))


async def test_a_forked_client_is_not_told_about_addresses():
    async with name_server({"T": route_of({"broker-a": "127.0.0.1:1"})}) as names:
        queue = MessageQueue("T", "broker-a", 0)
        async with ClientInstance(names.address) as client, PullConsumer("CG", client=client) as consumer:
            await consumer.fetch_subscribe_queues("T")
            client.remoting.is_forked = True
            with pytest.raises(RemotingConnectError, match=r"forked from; make a client after the fork$"):
                await consumer.max_offset(queue)
            client.remoting.is_forked = False


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, 4711])
def test_errors_of_answers_are_pickled_with_their_hints(code: int):
    error = broker_error(code, "the remark")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"{nonsense", NameServerError, "route of topic T cannot be read"),
        (b'{"queueDatas":7}', NameServerError, "route of topic T cannot be read"),
        (
            route_of({"broker-a": "127.0.0.1:1"}, queues=2**31 - 1).encode_standard(),
            RemoteProtocolError,
            "has over 65,536 queues",
        ),
        (
            TopicRouteData("broker-a:99999999999", [], []).encode_standard(),
            RemoteProtocolError,
            "orderTopicConf of T has over",
        ),
        (route_of({"broker-a": "nonsense"}).encode_standard(), RemotingConnectError, "'nonsense' is not an address"),
    ],
)
async def test_a_name_server_that_lies_is_a_typed_error(body: bytes, kind: type[Exception], text: str):
    lie: Script = lambda _fields, _body: response(body=body)  # noqa: E731
    async with (
        ScriptedServer({RequestCode.GET_ROUTEINFO_BY_TOPIC: lie}) as names,
        Producer("PG", names.address, retry_times_when_send_failed=0) as producer,
    ):
        with pytest.raises(kind, match=text):
            await producer.send(Message("T", b"body"), MessageQueue("T", "broker-a", 0))


async def test_a_silent_name_server_is_named_after_its_time():
    silent: Script = lambda _fields, _body: None  # noqa: E731
    async with ScriptedServer({RequestCode.GET_ROUTEINFO_BY_TOPIC: silent}) as names:
        config = ClientConfig(names.address, mq_client_api_timeout_s=0.3)
        async with Producer("PG", config) as producer:
            with pytest.raises(NameServerError, match=f"no answer from {names.address} to request code 105"):
                await producer.send(Message("T", b"body"))


async def test_properties_that_are_too_long_are_a_typed_error():
    async with Producer("PG", "127.0.0.1:1") as producer:
        with pytest.raises(CodecError, match="properties"):
            await producer.send(Message("T", b"body", properties={"p": "x" * 40_000}))
