"""Signatures of requests, and settings of connections."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.consumer.push_consumer import PushConsumer
from rocketbroker.client.core.client_config import AclClientRPCHook, ClientConfig, SessionCredentials
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import ClientError, NameServerError
from rocketbroker.client.core.message import Message
from rocketbroker.client.core.name_server_client import NameServerClient
from rocketbroker.client.core.requests import version_desc
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.remoting.bodies.client import HeartbeatData
from rocketbroker.codec.remoting.headers.message import (
    GetMaxOffsetRequestHeader,
    QueryMessageRequestHeader,
    SendMessageResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import ConfigError
from rocketbroker.namesrv.address_server import AddressServer
from tests.support.certificates import server_context, tls_tunnel
from tests.support.ports import free_ports
from tests.support.scripted_server import ScriptedServer, header_of, name_server, route_of


def test_a_signature_is_the_one_that_apaches_client_makes():
    """The text and its signature are those of Apache's AclSignerTest."""
    command = request(34)
    AclClientRPCHook(SessionCredentials("RocketMQ", "12345678")).sign(command)
    assert command.header == {"AccessKey": "RocketMQ", "Signature": "IUc8rrO/0gDch8CjObLQsW2rsiA="}


def test_the_values_are_signed_in_the_order_of_their_names_and_then_the_body():
    plain = request(34)
    AclClientRPCHook(SessionCredentials("ak-tokenqueue-1body-of-it", "secret")).sign(plain)
    command = request(34, {"topic": "-1", "queueId": "queue", "unset": None}, b"body-of-it")
    hook = AclClientRPCHook(SessionCredentials("ak-", "secret", "token"))
    hook.sign(command)
    assert command.header["Signature"] == plain.header["Signature"]
    assert command.header.keys() == {"AccessKey", "SecurityToken", "topic", "queueId", "Signature"}
    before = dict(command.header)
    hook.sign(command)
    assert command.header == before, "a request that is sent again keeps its signature"


def test_the_mark_of_a_query_by_unique_id_is_not_signed():
    """Brokers of 4.9 leave the mark out of the signature, later ones for clients up to 4.9.3."""
    command = request(12, QueryMessageRequestHeader("T", "id", 1, 0, 9, unique_key_query=True))
    hook = AclClientRPCHook(SessionCredentials("ak", "sk"))
    hook.sign(command)
    plain = request(12, {name: text for name, text in command.header.items() if name[0] != "_"})
    hook.sign(plain)
    assert command.header == {**plain.header, "_UNIQUE_KEY_QUERY": "true"}
    assert version_desc(command.version) == "V4_9_3"
    assert version_desc(plain.version) == "V5_5_0"


def test_a_typed_header_is_signed_as_it_is_sent():
    command = request(30, GetMaxOffsetRequestHeader("T", 3))
    AclClientRPCHook(SessionCredentials("ak", "sk")).sign(command)
    assert (command.header["topic"], command.header["queueId"]) == ("T", "3")


def test_the_secret_is_not_shown():
    credentials = SessionCredentials("ak", "sk", "token")
    assert "sk" not in repr(credentials)
    assert credentials.__rich_repr__() == [("access_key", "ak")]


@pytest.mark.parametrize("keys", [("", "sk"), ("ak", "")])
def test_an_empty_key_is_refused(keys: tuple[str, str]):
    with pytest.raises(ClientError, match="is empty; give both"):
        SessionCredentials(*keys)


SEND = RequestCode.SEND_MESSAGE_V2


def take(fields: dict[str, str], _body: bytes) -> Command:
    return response(header=header_of(SendMessageResponseHeader("0" * 32, int(fields["e"]), 0)))


class Stage:
    """A broker with topic T, which it also has in namespace NS, and its name server."""

    def __init__(self) -> None:
        self.broker = ScriptedServer({SEND: take})
        self.names = name_server({})

    async def open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.broker)
        route = route_of({"broker-a": self.broker.address}, queues=1)
        self.names = await stack.enter_async_context(name_server({"T": route, "NS%T": route}))


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        stage = Stage()
        await stage.open(stack)
        yield stage


async def test_requests_to_name_servers_and_brokers_are_signed(stage: Stage):
    config = ClientConfig(stage.names.address, credentials=SessionCredentials("ak", "sk"))
    async with Producer("PG", config) as producer, AdminClient(config) as admin:
        await producer.send(Message("T", b"body"))
        await producer.send_oneway(Message("T", b"body"))
        await admin.examine_broker_cluster_info()
    asked = [*stage.names.asked, *stage.broker.asked]
    codes = {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO, SEND}
    assert {each.code for each in asked} >= {*codes, RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT}
    for each in asked:
        assert each.fields["AccessKey"] == "ak"
        assert len(each.fields["Signature"]) == 28


async def test_connections_are_encrypted(stage: Stage, tmp_path: Path):
    context = await asyncio.to_thread(server_context, tmp_path)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    async with (
        tls_tunnel(stage.broker.address, context) as broker,
        name_server({"T": route_of({"broker-a": broker})}) as plain,
        tls_tunnel(plain.address, context) as names,
        Producer("PG", ClientConfig(names, tls=trusting)) as producer,
    ):
        await producer.send(Message("T", b"body" * 100_000, properties={"p": "v"}))
        assert len(stage.broker.of(SEND)) == 1
        async with AdminClient(ClientConfig(names, tls=True)) as admin:
            with pytest.raises(NameServerError, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
                await admin.fetch_all_topic_list()
        _, _, port = names.rpartition(":")
        async with AdminClient(ClientConfig(f"localhost:{port}", tls=trusting)) as admin:
            with pytest.raises(NameServerError, match="Hostname mismatch"):
                await admin.fetch_all_topic_list()


async def test_name_servers_come_from_the_environment(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NAMESRV_ADDR", stage.names.address)
    async with Producer("PG") as producer:
        await producer.send(Message("T", b"body"))
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ConfigError, match="no name server address given"):
        Producer("PG")


async def test_name_servers_come_from_an_address_server(stage: Stage):
    port = free_ports()
    server = AddressServer("127.0.0.1", port, lambda: stage.names.address)
    await server.start()
    config = ClientConfig(f"http://127.0.0.1:{port}/rocketmq/nsaddr", unit_name="unit-a")
    async with Producer("PG", config) as producer:
        await producer.send(Message("T", b"body"))
        await server.stop()
        await producer.send(Message("T", b"body"))


async def test_an_address_server_that_goes_away_leaves_the_known_name_servers(
    stage: Stage, caplog: pytest.LogCaptureFixture
):
    async with ClientInstance(ClientConfig("http://127.0.0.1:1/rocketmq/nsaddr")) as client:
        with pytest.raises(NameServerError, match=r"address server http://127.0.0.1:1"):
            await client.name_server.topic_route("T")
        client.name_server._addresses = (stage.names.address,)
        assert (await client.name_server.topic_route("T")).broker_datas
    assert "the known name servers are asked" in caplog.text


def test_a_unit_has_its_own_list_of_name_servers():
    config = ClientConfig("http://host/rocketmq/nsaddr", unit_name="u")
    name_servers: NameServerClient = config.name_server(config.remoting())
    assert name_servers.source == ("http://host/rocketmq/nsaddr-u?nofix=1",)


async def test_a_unit_is_a_part_of_the_client_id_and_of_requests(stage: Stage):
    config = ClientConfig(stage.names.address, unit_name="unit-a", unit_mode=True, client_ip="10.0.0.1")
    async with Producer("PG", config) as producer, PushConsumer("CG", config) as consumer:
        await producer.send(Message("T", b"body"))
        await consumer.subscribe("T")
    (sent,) = stage.broker.of(SEND)
    assert sent.fields["k"] == "true"
    beats = [HeartbeatData.decode(each.body) for each in stage.broker.of(RequestCode.HEART_BEAT)]
    assert {beat.client_id.partition("@")[0] for beat in beats} == {"10.0.0.1"}
    assert all(beat.client_id.endswith("@unit-a") for beat in beats)
    assert [data.unit_mode for beat in beats for data in beat.consumer_data_set][:1] == [True]


async def test_messages_go_by_the_vip_channel_and_heartbeats_do_not():
    port = free_ports(-2, 1)
    async with (
        ScriptedServer({SEND: take}, port=port - 2) as vip,
        ScriptedServer({}, port=port) as broker,
        name_server({"T": route_of({"broker-a": broker.address})}) as names,
        Producer("PG", ClientConfig(names.address, vip_channel_enabled=True)) as producer,
    ):
        await producer.send(Message("T", b"body"))
        assert [each.code for each in vip.asked] == [SEND]
        assert RequestCode.HEART_BEAT in {each.code for each in broker.asked}


async def test_a_namespace_is_added_to_topics_and_groups(stage: Stage):
    config = ClientConfig(stage.names.address, namespace="NS")
    async with Producer("PG", config) as producer, PushConsumer("CG", config) as consumer:
        await producer.send(Message("T", b"body"))
        await producer.send_oneway(Message("T", b"body"))
        assert {queue.topic for queue in await producer.fetch_publish_queues("T")} == {"NS%T"}
        await consumer.subscribe("T")
        assert (producer.group, consumer.group) == ("NS%PG", "NS%CG")
    assert {(each.fields["a"], each.fields["b"]) for each in stage.broker.of(SEND)} == {("NS%PG", "NS%T")}
    beats = [HeartbeatData.decode(each.body) for each in stage.broker.of(RequestCode.HEART_BEAT)]
    topics = {data.topic for beat in beats for each in beat.consumer_data_set for data in each.subscription_data_set}
    assert topics == {"NS%T", "%RETRY%NS%CG"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("loop_blocked_warning_s", 0),
        ("heartbeat_broker_interval_s", 0.0),
        ("heartbeat_broker_interval_s", None),
        ("poll_name_server_interval_s", -1),
        ("mq_client_api_timeout_s", "3"),
        ("mq_client_api_timeout_s", float("nan")),
        ("mq_client_api_timeout_s", True),
    ],
)
def test_a_wrong_number_of_seconds_is_named(name: str, value: Any):
    with pytest.raises(ConfigError, match=f"{name} is {value!r}; give a number of seconds above 0"):
        ClientConfig("h:1", **{name: value})


def test_tls_is_no_path():
    path: Any = "ca.pem"
    with pytest.raises(ConfigError, match=r"tls is 'ca.pem'; give True, or a context"):
        ClientConfig("h:1", tls=path)
