"""A cluster behind the front: what it asks name servers and brokers, and what it keeps of their answers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("google.protobuf", reason="the extra grpc is not installed")

from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.remoting.bodies.client import HeartbeatData, ProducerData
from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.headers.admin import UnregisterClientRequestHeader
from rocketbroker.codec.remoting.headers.message import CheckTransactionStateRequestHeader
from rocketbroker.codec.remoting.headers.pop import AckMessageRequestHeader, PopMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import (
    BrokerResponseError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
)
from rocketbroker.proxy import cluster_service_manager
from rocketbroker.proxy.call_context import awaited
from rocketbroker.proxy.cluster_service_manager import ClusterServiceManager
from tests.support.ports import free_ports
from tests.support.running import running
from tests.support.scripted_server import Script, ScriptedServer, name_server, route_of

ACK = request(RequestCode.ACK_MESSAGE, AckMessageRequestHeader("billing", "Orders", 0, "handle", 0))


class Channel:
    """A client; ``asked`` are the requests of brokers that it got."""

    client_id, remote_address = "client-1", "127.0.0.1:5000"

    def __init__(self, *, has_stream: bool = True) -> None:
        self.has_stream = has_stream
        self.asked: list[Command] = []

    def send_oneway(self, command: Command) -> bool:
        self.asked.append(command)
        return self.has_stream

    async def invoke(self, command: Command, timeout_s: float) -> Command:
        raise NotImplementedError


def topic_config(fields: dict[str, str], _body: bytes) -> Command:
    if fields["topic"] != "Orders":
        return response(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
    return response(body=TopicConfig("Orders", 2, 2, attributes={"message.type": "FIFO"}).encode())


def group_config(fields: dict[str, str], _body: bytes) -> Command:
    return response(body=SubscriptionGroupConfig(fields["group"], retry_max_times=3).encode())


SCRIPTS: dict[int, Script] = {
    RequestCode.GET_TOPIC_CONFIG: topic_config,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: group_config,
    RequestCode.ACK_MESSAGE: lambda _fields, _body: response(),
}


class Cluster:
    """A name server and a broker, and the front's view of them."""

    def __init__(self, broker: ScriptedServer, namesrv: ScriptedServer, routes: dict[str, TopicRouteData]) -> None:
        self.broker = broker
        self.namesrv = namesrv
        self.routes = routes
        self.brokers = ClusterServiceManager("proxy-1", ProxyConfig(namesrv_addr=namesrv.address))

    def heartbeats(self) -> list[list[str]]:
        """Return the producer groups of each heartbeat that the broker got."""
        found = [HeartbeatData.decode(each.body) for each in self.broker.of(RequestCode.HEART_BEAT)]
        assert {each.client_id for each in found} <= {"proxy-1"}
        return [[producer.group_name for producer in each.producer_data_set] for each in found]

    async def ask(self, channel: Channel, command: Command, broker_name: str = "broker-a") -> Command:
        """Send a request as a client does."""
        return await awaited(self.brokers.invoke(channel, broker_name, command))

    async def register(self, channel: Channel, *groups: str) -> None:
        body = HeartbeatData("client-1", [ProducerData(each) for each in groups], []).encode()
        assert (await self.ask(channel, request(RequestCode.HEART_BEAT, body=body), "")).code == 0


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with ScriptedServer(SCRIPTS) as broker:
        routes = {each: route_of({"broker-a": broker.address}) for each in ("Orders", "Paid")}
        async with name_server(routes) as namesrv:
            found = Cluster(broker, namesrv, routes)
            async with running(found.brokers):
                yield found


# -- routes and settings


async def test_a_route_is_asked_for_once(cluster: Cluster):
    routes = await asyncio.gather(*(cluster.brokers.topic_route("Orders") for _ in range(5)))
    again = await cluster.brokers.topic_route("Orders")

    assert [each.broker_datas[0].broker_name for each in [*routes, again]] == ["broker-a"] * 6
    assert len(cluster.namesrv.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1


async def test_an_old_route_is_asked_for_again(cluster: Cluster):
    cluster.brokers._routes._fresh_s = 0
    await cluster.brokers.topic_route("Orders")
    cluster.routes["Orders"] = route_of({"broker-b": "127.0.0.1:1"})

    assert (await cluster.brokers.topic_route("Orders")).broker_datas[0].broker_name == "broker-b"


async def test_an_old_route_is_kept_while_no_name_server_answers(cluster: Cluster):
    cluster.brokers._routes._fresh_s = 0
    await cluster.brokers.topic_route("Orders")
    await cluster.namesrv.stop()

    assert (await cluster.brokers.topic_route("Orders")).broker_datas[0].broker_name == "broker-a"
    with pytest.raises(RemotingError):
        await cluster.brokers.topic_route("Other")


async def test_a_missing_topic_is_looked_for_each_time(cluster: Cluster):
    for _ in range(2):
        with pytest.raises(BrokerResponseError) as raised:
            await cluster.brokers.topic_route("New")
        assert raised.value.code == ResponseCode.TOPIC_NOT_EXIST
    cluster.routes["New"] = cluster.routes["Orders"]

    assert (await cluster.brokers.topic_route("New")).queue_datas[0].broker_name == "broker-a"


async def test_a_topic_that_was_deleted_is_gone(cluster: Cluster):
    cluster.brokers._routes._fresh_s = 0
    await cluster.brokers.topic_route("Orders")
    del cluster.routes["Orders"]

    with pytest.raises(BrokerResponseError, match="Orders"):
        await cluster.brokers.topic_route("Orders")


async def test_settings_come_from_a_master(cluster: Cluster):
    topics = [await cluster.brokers.topic_config("Orders") for _ in range(2)]
    group = await cluster.brokers.subscription_group_config("billing")

    assert [each.attributes for each in topics] == [{"message.type": "FIFO"}] * 2
    assert (group.group_name, group.retry_max_times) == ("billing", 3)
    assert len(cluster.broker.of(RequestCode.GET_TOPIC_CONFIG)) == 1


async def test_times_are_settings():
    config = ProxyConfig(
        namesrv_addr="127.0.0.1:1",
        topic_route_service_cache_refresh_seconds=1,
        topic_config_cache_refresh_seconds=2,
        subscription_group_config_cache_refresh_seconds=3,
        transaction_heartbeat_period_second=4,
    )
    brokers = ClusterServiceManager("proxy-1", config)

    assert (brokers._routes._fresh_s, brokers._topics._fresh_s, brokers._subscription_groups._fresh_s) == (1, 2, 3)
    assert brokers._heartbeat_s == 4


async def test_a_brokers_refusal_of_settings_is_passed_on(cluster: Cluster):
    with pytest.raises(BrokerResponseError, match="no such topic"):
        await cluster.brokers.topic_config("Paid")


async def test_without_a_master_there_are_no_settings(cluster: Cluster):
    cluster.routes.clear()
    with pytest.raises(RemotingConnectError, match="no broker is registered"):
        await cluster.brokers.subscription_group_config("billing")
    slave = route_of({"broker-b": "127.0.0.1:1"})
    slave.broker_datas[0].broker_addrs = {1: "127.0.0.1:1"}
    cluster.routes["Orders"] = slave
    with pytest.raises(RemotingConnectError, match="no master of topic Orders"):
        await cluster.brokers.topic_config("Orders")


async def test_the_cache_has_a_limit(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster_service_manager, "_MOST_CACHED", 1)
    for topic in ("Orders", "Paid", "Orders"):
        await cluster.brokers.topic_route(topic)

    assert len(cluster.namesrv.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 3


# -- requests


async def test_a_request_goes_to_the_master_of_its_broker(cluster: Cluster):
    answer = await cluster.ask(Channel(), ACK)

    assert answer.code == ResponseCode.SUCCESS
    assert isinstance(answer.body, bytes)
    [asked] = cluster.broker.of(RequestCode.ACK_MESSAGE)
    assert asked.fields["extraInfo"] == "handle"


async def test_a_broker_that_is_not_registered_is_an_error(cluster: Cluster):
    with pytest.raises(RemotingConnectError, match="no master of broker broker-z is registered"):
        await cluster.ask(Channel(), ACK, "broker-z")


async def test_a_broker_that_moved_is_found_again(cluster: Cluster):
    cluster.routes["Orders"] = route_of({"broker-a": f"127.0.0.1:{free_ports()}"})
    del cluster.routes["Paid"]
    with pytest.raises(RemotingConnectError):
        await cluster.ask(Channel(), ACK)
    cluster.routes["Orders"] = route_of({"broker-a": cluster.broker.address})

    assert (await cluster.ask(Channel(), ACK)).code == ResponseCode.SUCCESS


async def test_a_pop_may_take_its_poll_time_longer(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    held: dict[int, Script] = {code: lambda _fields, _body: None for code in (200050, 200051)}
    held[RequestCode.NOTIFICATION] = lambda _fields, _body: response()
    pop = PopMessageRequestHeader("billing", "Orders", -1, 1, 60_000, 2_000, 0, 1)
    async with ScriptedServer(held) as broker:
        cluster.routes["Orders"] = cluster.routes["Paid"] = route_of({"broker-a": broker.address})
        await cluster.ask(Channel(), request(RequestCode.NOTIFICATION))  # connects
        monkeypatch.setattr(cluster_service_manager, "_TIMEOUT_S", 0.5)
        loop = asyncio.get_running_loop()
        with pytest.raises(RemotingTimeoutError):
            await cluster.ask(Channel(), ACK)
        began = loop.time()
        with pytest.raises(RemotingTimeoutError):
            await cluster.ask(Channel(), request(RequestCode.POP_MESSAGE, pop))
        waited = loop.time() - began

    assert waited >= 2.4


# -- clients


async def test_brokers_know_the_proxy_as_a_producer_of_all_topics(cluster: Cluster):
    first, second, third = Channel(), Channel(), Channel()
    await cluster.register(first, "Orders")
    await cluster.register(second, "Orders")
    await cluster.register(third, "Paid", "Orders")

    assert cluster.heartbeats() == [["Orders"], ["Orders", "Paid"]], "the second told nothing new"
    cluster.brokers.closed(third)
    header = UnregisterClientRequestHeader("client-1", producer_group="Orders")
    assert (await cluster.ask(first, request(RequestCode.UNREGISTER_CLIENT, header), "")).code == 0
    await cluster.brokers._heartbeat()

    assert cluster.heartbeats()[2:] == [["Orders"]]


async def test_a_topic_without_a_route_does_not_keep_others_from_a_heartbeat(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
):
    await cluster.register(Channel(), "Gone", "Orders")

    assert cluster.heartbeats() == [["Orders"]]
    assert sum("transactions of topic Gone are not checked" in each for each in caplog.messages) == 1


async def test_a_broker_that_takes_no_heartbeat_is_named(cluster: Cluster, caplog: pytest.LogCaptureFixture):
    port = free_ports()
    cluster.routes["Orders"] = route_of({"broker-a": cluster.broker.address, "broker-b": f"127.0.0.1:{port}"})
    await cluster.register(Channel(), "Orders")

    assert cluster.heartbeats() == [["Orders"]]
    assert (
        sum(f"broker 127.0.0.1:{port} does not know this proxy as a producer" in each for each in caplog.messages) == 1
    )


def check(group: str) -> Command:
    properties = encode_properties({"PGROUP": group})
    host = host_bytes("127.0.0.1", 1)
    body = encode_record(0, 0, 5, 4096, 0, 1, host, 2, host, 0, 0, b"half", b"Orders", properties)
    return request(RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionStateRequestHeader(5, 4096), body, oneway=True)


async def test_one_producer_of_a_topic_is_asked_for_an_outcome(cluster: Cluster, caplog: pytest.LogCaptureFixture):
    deaf, first, second, other = Channel(has_stream=False), Channel(), Channel(), Channel()
    for channel, group in ((other, "Paid"), (deaf, "Orders"), (first, "Orders"), (second, "Orders")):
        await cluster.register(channel, group)
    connection = cluster.brokers  # the way back is not used
    cluster.brokers._check(connection, check("Orders"))  # type: ignore[arg-type]
    cluster.brokers._check(connection, check("Unknown"))  # type: ignore[arg-type]

    assert [len(each.asked) for each in (other, deaf, first, second)] == [0, 1, 1, 0]
    assert [each for each in caplog.messages if "stays open" in each] == [
        "no client of this proxy sends to Unknown, and a transaction of it stays open"
    ]


async def test_a_held_request_cannot_be_dropped(cluster: Cluster):
    cluster.brokers.drop(Channel(), ACK)

    assert cluster.broker.asked == []
