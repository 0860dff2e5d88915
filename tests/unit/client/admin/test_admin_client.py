"""Calls of administration: one for each code, at the right broker, in its time limit; tracks of messages."""

import ast
import re
from pathlib import Path

import pytest

from rocketbroker.client.admin import admin_client
from rocketbroker.client.admin.admin_client import AdminClient, TrackType, message_track_detail
from rocketbroker.client.consumer.push_consumer import PushConsumer
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.errors import ClientStateError, NameServerError, RequestCodeNotSupportedError
from rocketbroker.client.core.message import Message
from rocketbroker.client.core.received_message import ReceivedMessage
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_decoder import decode_record, encode_record
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.remoting.bodies.client import (
    CMResult,
    Connection,
    ConsumerConnection,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocketbroker.codec.remoting.bodies.offset import ConsumeStats, OffsetWrapper
from rocketbroker.codec.remoting.bodies.remoting_serializable import GroupList
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import CodecError, RemotingConnectError, RemotingTimeoutError, RocketBrokerError
from rocketbroker.testing import RocketMQServer
from tests.support.scripted_server import Script, ScriptedServer, name_server, route_of
from tests.support.waiting import until

SOURCES = Path(admin_client.__file__).parent
CODES = Path(__file__).parents[4] / "docs" / "reference" / "request-codes.md"
REQUESTS = {"client_request", "_ask", "_ask_access", "_ask_first", "_ask_name_server", "_ask_name_servers"}


def methods() -> list[ast.AsyncFunctionDef]:
    trees = [ast.parse(path.read_text()) for path in SOURCES.glob("*.py")]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)]


def codes_sent(method: ast.AsyncFunctionDef) -> set[str]:
    """Return the codes in calls that make a request."""
    calls = [node for node in ast.walk(method) if isinstance(node, ast.Call)]
    requests = [call for call in calls if ast.unparse(call.func).rpartition(".")[2] in REQUESTS]
    texts = [ast.unparse(argument) for call in requests for argument in call.args]
    return {text.removeprefix("RequestCode.") for text in texts if text.startswith("RequestCode.")}


def test_each_administration_code_has_a_call():
    served = set(re.findall(r"^\| \d+ \| (\w+) \| administration \|", CODES.read_text(), re.MULTILINE))
    called = {code for method in methods() if hasattr(AdminClient, method.name) for code in codes_sent(method)}
    # A tool's commit of offsets is `commit_offset` of a consumer.
    assert len(served) > 40
    assert served - called == set()


async def test_failures_of_a_call_before_are_no_failures_of_this_one():
    failures: dict[str, RocketBrokerError] = {"h:1": RemotingTimeoutError("before")}
    stats: Script = lambda _fields, _body: response(body=ConsumeStats().encode())  # noqa: E731
    async with ScriptedServer({RequestCode.GET_CONSUME_STATS: stats}) as broker, AdminClient("127.0.0.1:1") as admin:
        for addresses in ([], [broker.address]):
            found = await admin.examine_consume_stats("CG", addresses=addresses, failures=failures)
            assert found.offset_table == {}
    assert list(failures) == ["h:1"]


async def test_a_message_is_consumed_directly_at_the_broker_that_has_it():
    received: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        received.append(message.body)

    async with (
        RocketMQServer(brokers=2) as mq,
        Producer("PG", mq.namesrv_addr) as producer,
        PushConsumer("CG", mq.namesrv_addr, handler=handle) as consumer,
        AdminClient(mq.namesrv_addr) as admin,
    ):
        await consumer.subscribe("T")
        queues = {queue.broker_name: queue for queue in await producer.fetch_publish_queues("T")}
        assert len(queues) == 2
        sent = {name: await producer.send(Message("T", name.encode()), queue) for name, queue in queues.items()}
        await until(lambda: len(received) == 2)
        (client,) = (await admin.examine_consumer_connection_info("CG")).connection_set
        for name, result in sent.items():
            received.clear()
            done = await admin.consume_message_directly("CG", client.client_id, "T", result.offset_msg_id)
            assert (done.consume_result, received) == (CMResult.CR_SUCCESS, [name.encode()])
        with pytest.raises(CodecError):
            await admin.consume_message_directly("CG", client.client_id, "T", "no id")


@pytest.mark.parametrize(
    ("config", "given", "limit_s"),
    [
        ("h:1", None, 5.0),
        (ClientConfig("h:1", mq_client_api_timeout_s=60.0), None, 60.0),
        (ClientConfig("h:1", mq_client_api_timeout_s=60.0), 7.0, 7.0),
    ],
)
def test_the_limit_of_requests_is_that_of_the_settings(config: str | ClientConfig, given: float | None, limit_s: float):
    admin = AdminClient(config, timeout_s=given)
    assert (admin._timeout_s, admin._name_server._timeout_s) == (limit_s, limit_s)


async def test_a_closed_client_asks_nobody():
    async with ScriptedServer({}) as broker, name_server({"T": route_of({"b": broker.address})}) as names:
        async with AdminClient(names.address) as admin, Producer("PG", names.address) as producer:
            await producer.fetch_publish_queues("T")
        with pytest.raises(NameServerError, match="the client is closed; make a new one"):
            await admin.examine_topic_route_info("T")
        with pytest.raises(RemotingConnectError, match="the client is closed; make a new one"):
            await admin.clean_unused_topic(broker.address)
        with pytest.raises(ClientStateError, match="or is closed"):
            await producer.fetch_publish_queues("T")


async def test_a_request_that_a_server_does_not_know_raises_the_error_of_its_code():
    async with ScriptedServer({}) as broker, name_server({}) as names, AdminClient(names.address) as admin:
        with pytest.raises(RequestCodeNotSupportedError, match="CODE: 3"):
            await admin.clean_unused_topic(broker.address)
        with pytest.raises(RequestCodeNotSupportedError, match="CODE: 3"):
            await admin.get_system_topic_list()


PUSH, PULL = ConsumeType.CONSUME_PASSIVELY, ConsumeType.CONSUME_ACTIVELY
CLUSTERING, BROADCASTING = MessageModel.CLUSTERING, MessageModel.BROADCASTING


@pytest.mark.parametrize(
    ("kind", "model", "consumed", "tags", "expected"),
    [
        (PULL, CLUSTERING, 9, [], TrackType.PULL),
        (PUSH, BROADCASTING, 9, [], TrackType.CONSUME_BROADCASTING),
        (PUSH, CLUSTERING, 5, [], TrackType.NOT_CONSUME_YET),
        (PUSH, CLUSTERING, 6, [], TrackType.CONSUMED),
        (PUSH, CLUSTERING, 6, ["demo"], TrackType.CONSUMED),
        (PUSH, CLUSTERING, 6, ["other"], TrackType.CONSUMED_BUT_FILTERED),
    ],
)
async def test_the_clients_and_offsets_tell(
    kind: ConsumeType, model: MessageModel, consumed: int, tags: list[str], expected: TrackType
):
    subscription = SubscriptionData("T", "*", 1, tags)
    clients = ConsumerConnection([Connection("id", "h:1")], {"T": subscription}, kind, model)
    stats = ConsumeStats({MessageQueue("T", "broker-a", 2): OffsetWrapper(10, consumed)})
    assert await track_of(response(body=clients.encode()), stats) == (expected, None)


@pytest.mark.parametrize(
    ("code", "expected"),
    [(ResponseCode.CONSUMER_NOT_ONLINE, TrackType.NOT_ONLINE), (ResponseCode.SYSTEM_ERROR, TrackType.UNKNOWN)],
)
async def test_a_refusal_is_reported(code: int, expected: TrackType):
    assert await track_of(response(code, "why"), ConsumeStats()) == (expected, f"CODE:{int(code)} DESC:why")


async def track_of(clients: Command, stats: ConsumeStats) -> tuple[TrackType, str | None]:
    """The track of a message at offset 5 of queue 2 with tag ``demo``."""
    scripts = {
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: lambda _fields, _body: response(body=GroupList(["CG"]).encode()),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: lambda _fields, _body: clients,
        RequestCode.GET_CONSUME_STATS: lambda _fields, _body: response(body=stats.encode()),
    }
    async with ScriptedServer({int(code): script for code, script in scripts.items()}) as broker:
        route = route_of({"broker-a": broker.address})
        host = host_bytes("127.0.0.1", int(broker.address.rpartition(":")[2]))
        properties = encode_properties({"TAGS": "demo"})
        message = decode_record(encode_record(2, 0, 5, 0, 0, 1, host, 2, host, 0, 0, b"x", b"T", properties))
        async with name_server({"T": route, "%RETRY%CG": route}) as names, AdminClient(names.address) as admin:
            (track,) = await message_track_detail(admin, message)
    assert track.consumer_group == "CG"
    return track.track_type, track.exception_desc


async def test_a_look_waits_once_for_a_frozen_broker():
    silent: Script = lambda _fields, _body: None  # noqa: E731
    async with (
        ScriptedServer({RequestCode.GET_BROKER_RUNTIME_INFO: silent}) as broker,
        AdminClient("127.0.0.1:1", timeout_s=0.05) as admin,
    ):
        admin.ask_silent_servers_once()
        with pytest.raises(RemotingTimeoutError):
            await admin.fetch_broker_runtime_stats(broker.address)
        with pytest.raises(RemotingTimeoutError, match=f"{broker.address} has let a request before this one time"):
            await admin.fetch_broker_runtime_stats(broker.address)
        assert len(broker.asked) == 1
        admin.ask_silent_servers_once()
        with pytest.raises(RemotingTimeoutError):
            await admin.fetch_broker_runtime_stats(broker.address)
        assert len(broker.asked) == 2
