"""A name server under requests that are too large: it refuses them, serves others meanwhile, and keeps its state."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from struct import pack

import pytest

from rocketbroker.codec.remoting.bodies.register_broker_body import RegisterBrokerBody
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion, KVTable, TopicList
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig, TopicConfigAndMappingSerializeWrapper
from rocketbroker.codec.remoting.headers.namesrv import (
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    PutKVConfigRequestHeader,
    RegisterBrokerRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.our_servers import OurServer, OurServers, cpu_seconds
from tests.support.running import stopping

TIMEOUT_S = 60.0
MIB = 1 << 20


def registration(
    body: bytes, name: str = "broker-a", port: int = 10911, *, compressed: bool = False, broker_id: int = 0
) -> Command:
    header = RegisterBrokerRequestHeader(name, f"127.0.0.1:{port}", "C", "127.0.0.1:10912", broker_id)
    header.compressed = compressed
    return request(RequestCode.REGISTER_BROKER, header, body)


def topics(count: int, start: int = 0) -> bytes:
    configs = {name: TopicConfig(name, 4, 4) for name in (f"Topic-{number}" for number in range(start, start + count))}
    return RegisterBrokerBody(TopicConfigAndMappingSerializeWrapper(configs, DataVersion(1, count))).encode()


def bomb(size: int) -> bytes:
    """A registration that grows to ``size`` bytes: one topic after the other, without an end."""
    version, topic = b'{"counter":1,"stateVersion":0,"timestamp":1}', b"T 8 8 6 SINGLE_TAG {}"
    head = pack(">i", len(version)) + version + pack(">i", 1)
    packer = zlib.compressobj(9)
    data = packer.compress(head)
    block = (pack(">i", len(topic)) + topic) * (MIB // (4 + len(topic)))
    for _ in range(size // len(block)):
        data += packer.compress(block)
    return data + packer.flush()


def route(topic: str) -> Command:
    return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic))


async def all_topics(remoting: RemotingClient, where: str) -> list[str]:
    answer = await remoting.invoke(where, request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), TIMEOUT_S)
    return TopicList.decode(answer.body).topic_list


async def test_a_large_registration_is_accepted_and_a_too_large_one_rejected(servers: OurServers) -> None:
    where = servers.namesrv(maxRegistrationSize=MIB, maxTopicsPerBroker=5_000).address
    async with stopping(RemotingClient()) as broker, stopping(RemotingClient()) as other:
        assert (await broker.invoke(where, registration(topics(4_000)), TIMEOUT_S)).code == 0
        answer = await broker.invoke(where, registration(topics(4_000, 500)), TIMEOUT_S)
        assert answer.code == 0
        assert len(await all_topics(broker, where)) == 4_500
        for body, compressed, named in (
            (bomb(8 * MIB), True, "maxRegistrationSize: 1,048,577 bytes exceed the limit of 1,048,576"),
            (topics(4_000, 4_000), False, "maxTopicsPerBroker: 8,000 topics of broker-a exceed the limit of 5,000"),
            (topics(5_001), False, "maxTopicsPerBroker: 5,001 topics exceed the limit of 5,000"),
            (many_lists(200_000), False, "JSON values (16 a topic) exceed the limit of 81,024"),
        ):
            refused = await broker.invoke(where, registration(body, compressed=compressed), TIMEOUT_S)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert named in (refused.remark or "")
        assert len(await all_topics(other, where)) == 4_500
        assert (await other.invoke(where, route("Topic-4499"), TIMEOUT_S)).code == 0


async def test_registrations_are_applied_in_order(servers: OurServers) -> None:
    where = servers.namesrv(deleteTopicWithBrokerRegistration="true").address
    async with stopping(RemotingClient()) as broker:
        bodies = [topics(3_000), topics(2), topics(2_000), topics(3)]
        answers = await asyncio.gather(*(broker.invoke(where, registration(body), TIMEOUT_S) for body in bodies))
        assert [answer.code for answer in answers] == [0, 0, 0, 0]
        assert await all_topics(broker, where) == ["Topic-0", "Topic-1", "Topic-2"]


async def test_a_second_master_registers_only_after_the_first_is_gone(servers: OurServers) -> None:
    server = servers.namesrv()
    async with stopping(RemotingClient()) as first, stopping(RemotingClient()) as second:
        assert (await first.invoke(server.address, registration(topics(3)), TIMEOUT_S)).code == 0
        refused = await second.invoke(server.address, registration(topics(5), port=10921), TIMEOUT_S)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "broker-a:0 at 127.0.0.1:10921 is rejected: broker-a:0 at 127.0.0.1:10911" in (refused.remark or "")
        assert len(await all_topics(second, server.address)) == 3
        await first.stop()
        async with asyncio.timeout(TIMEOUT_S):
            while (await second.invoke(server.address, registration(topics(5), port=10921), TIMEOUT_S)).code != 0:
                pass
        answer = await second.invoke(server.address, route("Topic-4"), TIMEOUT_S)
        assert b'"127.0.0.1:10921"' in answer.body


# -- the sizes that once stopped a name server


def peak_bytes(server: OurServer) -> int:
    """The most memory that the process ever had."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


class Prober:
    """Asks for a route again and again and keeps the most CPU time that the server used up until an answer."""

    def __init__(self, server: OurServer) -> None:
        self._server = server
        self.longest_s = 0.0
        self.answers = 0

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async with stopping(RemotingClient()) as remoting, asyncio.TaskGroup() as group:
            asking = group.create_task(self._ask(remoting))
            try:
                yield
            finally:
                asking.cancel()

    async def _ask(self, remoting: RemotingClient) -> None:
        while True:
            began = cpu_seconds(self._server)
            assert (await remoting.invoke(self._server.address, route("Topic-1"), TIMEOUT_S)).code == 0
            self.longest_s = max(self.longest_s, cpu_seconds(self._server) - began)
            self.answers += 1
            await asyncio.sleep(0.005)


def many_small_topics(size: int) -> bytes:
    table = b",".join(b'"%x":{}' % number for number in range(size // 12))
    return b'{"topicConfigSerializeWrapper":{"topicConfigTable":{%b}},"filterServerList":[]}' % table


def many_lists(count: int) -> bytes:
    return b"[" + b"[]," * count + b"1]"


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("body", "compressed", "accepted"),
    [
        (partial(bomb, 250 * MIB), True, False),
        (partial(many_small_topics, 4_000_000), False, False),
        (partial(many_small_topics, 15_000_000), False, False),
        (partial(many_lists, 5_000_000), False, False),
        (partial(topics, 50_000, 10), False, True),
        (partial(topics, 90_000, 10), False, True),
    ],
    ids=["250 MiB compressed", "4 MB of topics", "15 MB of topics", "15 MB of []", "50,000 topics", "90,000 topics"],
)
async def test_no_registration_blocks_the_name_server_or_fills_its_memory(
    servers: OurServers, body: Callable[[], bytes], compressed: bool, accepted: bool
) -> None:
    server = servers.namesrv()
    prober = Prober(server)
    async with stopping(RemotingClient()) as broker, stopping(RemotingClient()) as stranger:
        assert (await broker.invoke(server.address, registration(topics(3)), TIMEOUT_S)).code == 0
        before = peak_bytes(server)
        async with prober.at_work():
            for _ in range(5):
                said = registration(body(), name="stranger", port=1, compressed=compressed)
                answer = await stranger.invoke(server.address, said, 60.0)
                assert (answer.code == 0) == accepted, answer.remark
        grown = peak_bytes(server) - before
        print(
            f"{grown / MIB:.0f} MiB more, route asked {prober.answers} times, {prober.longest_s * 1000:.0f} ms at most"
        )
        assert grown < 300 * MIB
        # A held loop took 20 s and more.
        assert prober.longest_s < 3.0
        await stranger.stop()
        async with asyncio.timeout(TIMEOUT_S):
            while len(await all_topics(broker, server.address)) > 3:
                pass  # its registration ends with its connection


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_brokers_keep_their_route_with_a_huge_key_value_configuration(servers: OurServers) -> None:
    huge = {"Topic-1": "x" * (9 * MIB), "Topic-2": "y" * (9 * MIB), "Topic-0": "broker-a:4"}
    (servers.home / "kvConfig.json").write_text(json.dumps({"configTable": {"ORDER_TOPIC_CONFIG": huge}}))
    server = servers.namesrv(orderMessageEnable="true")
    async with stopping(RemotingClient()) as broker, stopping(RemotingClient()) as stranger:
        answer = await broker.invoke(server.address, registration(topics(3)), TIMEOUT_S)
        assert KVTable.decode(answer.body).table == {"Topic-0": "broker-a:4"}
        for topic in ("Topic-0", "Topic-1"):
            assert (await broker.invoke(server.address, route(topic), TIMEOUT_S)).code == 0
        listing = request(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader("ORDER_TOPIC_CONFIG"))
        refused = await stranger.invoke(server.address, listing, TIMEOUT_S)
        assert "more than a frame can carry" in (refused.remark or "")
        put = request(
            RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader("ORDER_TOPIC_CONFIG", "Topic-3", "z" * 200_000)
        )
        refused = await stranger.invoke(server.address, put, TIMEOUT_S)
        assert "maxKvValueSize: 200,002 bytes" in (refused.remark or "")
        assert peak_bytes(server) < 400 * MIB
