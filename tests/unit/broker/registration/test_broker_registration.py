"""Slaves that a name server knows count at once, whatever the other name servers do."""

import asyncio
import zlib

import pytest

from rocketbroker.broker.registration import broker_registration
from rocketbroker.broker.registration.broker_registration import (
    BrokerHeartbeat,
    BrokerRegistration,
    KnownSlaves,
    fetch_members,
)
from rocketbroker.broker.topic.topic_config_manager import TopicChange, TopicConfigManager
from rocketbroker.codec.remoting.bodies.register_broker_body import RegisterBrokerBody
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.route import (
    BrokerMemberGroup,
    GetBrokerMemberGroupResponseBody,
    QueueData,
    TopicRouteData,
)
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.frame import FRAME_MAX_LENGTH
from rocketbroker.codec.remoting.remoting_command import Command, response, to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.common.errors import CodecError, RemotingConnectError, RemotingTimeoutError
from tests.support.fakes import FakeClock
from tests.support.golden_frames import requests_of
from tests.support.running import running
from tests.support.waiting import until


class FrozenNameServers:
    """One name server answers, the other one is frozen; ``asked`` counts the requests."""

    def __init__(self) -> None:
        self.asked = 0

    async def invoke(self, address: str, _command: Command, _timeout_s: float) -> Command:
        self.asked += 1
        if address == "frozen":
            await asyncio.Event().wait()
        group = BrokerMemberGroup("c", "b", {0: "127.0.0.1:1", 1: "127.0.0.2:1", 2: "127.0.0.2:2"})
        return response(ResponseCode.SUCCESS, body=GetBrokerMemberGroupResponseBody(group).encode())


async def test_a_frozen_name_server_delays_no_answer_of_another():
    slaves = KnownSlaves(BrokerConfig(), FrozenNameServers(), lambda: ["frozen", "well"])  # type: ignore[arg-type]
    async with running(slaves):
        await until(lambda: slaves.hosts == ["127.0.0.2", "127.0.0.2"])


async def test_a_slave_that_has_just_connected_is_asked_for_soon(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(broker_registration, "_PERIOD_S", 3600.0)
    monkeypatch.setattr(broker_registration, "_PAUSE_S", 0.01)
    client = FrozenNameServers()
    slaves = KnownSlaves(BrokerConfig(), client, lambda: ["well"])  # type: ignore[arg-type]
    async with running(slaves):
        await until(lambda: client.asked == 1)
        slaves.look_again()
        await until(lambda: client.asked == 2)


CONFIG = BrokerConfig(broker_name="broker-a", broker_cluster_name="DefaultCluster")


class OneAnswer:
    """Gives one answer, and keeps the last request."""

    def __init__(self, answer: Command) -> None:
        self._answer = answer
        self.asked: Command | None = None

    async def invoke(self, _address: str, command: Command, _timeout_s: float) -> Command:
        self.asked = command
        return self._answer


async def test_the_request_is_the_recorded_one():
    client = OneAnswer(
        response(body=GetBrokerMemberGroupResponseBody(BrokerMemberGroup("c", "b", {0: "a:1"})).encode())
    )

    assert await fetch_members(client, CONFIG, "ns") == {0: "a:1"}  # type: ignore[arg-type]
    recorded = requests_of(RequestCode.GET_BROKER_MEMBER_GROUP)[0].command()
    assert client.asked is not None
    assert to_ext_fields(client.asked.header) == recorded.header


@pytest.mark.parametrize("answer", [response(ResponseCode.SYSTEM_ERROR, "no"), response(body=b"garbage")])
async def test_another_answer_is_an_error(answer: Command):
    with pytest.raises(CodecError):
        await fetch_members(OneAnswer(answer), CONFIG, "ns")  # type: ignore[arg-type]


async def test_connecting_counts_towards_the_timeout():
    class Unreachable:
        async def invoke(self, _address: str, _command: Command, _timeout_s: float) -> Command:
            never: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
            return await never

    with pytest.raises(RemotingTimeoutError, match=r"ns does not answer within 0\.01 s"):
        await fetch_members(Unreachable(), CONFIG, "ns", 0.01)  # type: ignore[arg-type]


async def test_an_empty_answer_names_no_broker():
    assert await fetch_members(OneAnswer(response()), CONFIG, "ns") == {}  # type: ignore[arg-type]


@pytest.fixture
def topics(tmp_path):
    return TopicConfigManager(tmp_path / "topics.json", BrokerConfig(broker_ip1="127.0.0.1"), FakeClock())


def make(topics, host="127.0.0.1", **settings):
    config = BrokerConfig(broker_name="broker-a", broker_ip1=host, broker_ip2=host, listen_port=30911, **settings)
    return BrokerRegistration(config, MessageStoreConfig(ha_listen_port=30912), topics)


def recorded_master(code):
    return [frame for frame in requests_of(code) if frame.client == "broker-master"]


def test_recorded_registrations_are_made_from_their_topics(topics):
    compared = 0
    for frame in recorded_master(RequestCode.REGISTER_BROKER):
        theirs = frame.command().header
        wrapper = RegisterBrokerBody.decode(frame.body()).topic_config_serialize_wrapper
        if wrapper.topic_queue_mapping_info_map:
            continue
        acts = theirs["enableActingMaster"] == "true"
        topics.topics, topics.data_version = wrapper.topic_config_table, wrapper.data_version
        (ours,) = make(topics, enable_slave_acting_master=acts).whole()
        # Only the version of the table of static topics, which there are none of, is a time of its own.
        version = b'"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":%d}'
        body = bytes(ours.body).replace(
            version % topics.data_version.timestamp, version % wrapper.mapping_data_version.timestamp
        )
        assert body == frame.body()
        assert zlib.crc32(body) & 0x7FFFFFFF == int(theirs.pop("bodyCrc32"))
        fields = to_ext_fields(ours.header) or {}
        assert fields.pop("bodyCrc32") == str(zlib.crc32(ours.body) & 0x7FFFFFFF)
        assert fields == theirs
        compared += 1
    assert compared > 10


def test_ipv6_addresses_have_brackets(topics):
    (command,) = make(topics, "2001:db8::1").whole()
    assert (command.header.broker_addr, command.header.ha_server_addr) == ("[2001:db8::1]:30911", "[2001:db8::1]:30912")


def test_recorded_heartbeats(topics):
    recorded = recorded_master(RequestCode.BROKER_HEARTBEAT)
    assert recorded
    for frame in recorded:
        assert to_ext_fields(make(topics).heartbeat().header) == frame.command().header


def test_recorded_unregistration(topics):
    for frame in recorded_master(RequestCode.UNREGISTER_BROKER):
        assert to_ext_fields(make(topics).unregister().header) == frame.command().header


def test_whole_body_is_rebuilt_only_after_a_change(topics):
    registration = make(topics)
    (first,) = registration.whole()
    (again,) = registration.whole()
    assert again.body is first.body
    topics.update(TopicConfig("T"))
    (changed,) = registration.whole()
    assert b'"T"' in changed.body


def test_increment_has_only_what_changed(topics):
    (command,) = make(topics, broker_permission=2).increment(
        TopicChange([TopicConfig("T", perm=6)], DataVersion(1, 2, 3), is_deletion=False)
    )
    wrapper = RegisterBrokerBody.decode(command.body).topic_config_serialize_wrapper
    assert wrapper.topic_config_table == {"T": TopicConfig("T", perm=2)}
    assert wrapper.data_version == DataVersion(1, 2, 3)


def registered(commands):
    return [RegisterBrokerBody.decode(command.body).topic_config_serialize_wrapper for command in commands]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_registration_of_some_topics_names_a_static_one_so_that_no_name_server_drops_the_others(topics, compressed):
    registration = make(topics, compressed_register=compressed)
    (whole,) = registration.whole()
    change = TopicChange([TopicConfig("T")], DataVersion(), is_deletion=False)
    (some,) = registration.increment(change)

    def mappings(command):
        read = RegisterBrokerBody.decode_compressed(command.body, 500) if compressed else registered_body(command)
        return read.topic_config_serialize_wrapper.topic_queue_mapping_info_map

    assert mappings(whole) == {}
    (info,) = mappings(some).values()
    assert (info.bname, info.total_queues, info.curr_id_map) == ("broker-a", 0, {})


def registered_body(command):
    return RegisterBrokerBody.decode(command.body)


def test_parts_have_all_topics_and_versions_of_their_own_of_which_the_last_is_true(topics):
    for number in range(25):
        topics.update(TopicConfig(f"T{number}"))
    registration = make(topics, enable_split_registration=True, split_registration_size=10)
    for _ in range(2):
        parts = registered(registration.whole())
        assert [len(part.topic_config_table) for part in parts[:-1]] == [10] * (len(parts) - 1)
        assert {name: topic for part in parts for name, topic in part.topic_config_table.items()} == topics.topics
        versions = [part.data_version for part in parts]
        assert versions[-1] == topics.data_version
        assert len({(version.counter, version.timestamp) for version in versions}) == len(parts)
        assert all(part.topic_queue_mapping_info_map for part in parts)


def test_a_part_whose_body_is_too_long_is_halved(topics, monkeypatch):
    monkeypatch.setattr(broker_registration, "MOST_BYTES", 1000)
    change = TopicChange([TopicConfig(f"T{number}") for number in range(40)], DataVersion(1, 2, 3), is_deletion=False)
    parts = make(topics).increment(change)
    assert all(len(part.body) <= 1000 for part in parts)
    names = [name for part in registered(parts) for name in part.topic_config_table]
    assert names == [f"T{number}" for number in range(40)]


@pytest.mark.long
def test_a_hundred_thousand_topics_fit_into_frames(topics):
    attributes = {"+message.type": "TRANSACTION"}
    topics.topics.update(
        {name: TopicConfig(name, attributes=attributes) for name in map("{:0127}".format, range(99_000))}
    )
    parts = list(make(topics).whole())
    assert len(parts) == 20
    assert max(len(part.body) for part in parts) < FRAME_MAX_LENGTH // 6


def test_a_single_topic(topics):
    command = make(topics, broker_permission=4).single(TopicConfig("T", 3, 2, 6, topic_sys_flag=1))
    assert (command.code, to_ext_fields(command.header)) == (RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "T"})
    assert TopicRouteData.decode(command.body).queue_datas == [QueueData("broker-a", 3, 2, 4, 1)]


def test_query_data_version(topics):
    command = make(topics).query_data_version()
    assert command.body == topics.data_version.encode()
    assert to_ext_fields(command.header) == {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:30911",
        "clusterName": "DefaultCluster",
        "brokerId": "0",
    }


class BreakingConnections:
    """Connections to some addresses, one of which breaks when it is used."""

    def __init__(self) -> None:
        self.connected = {"ns1", "breaks"}
        self.sent: list[tuple[str, int]] = []

    def is_connected(self, address: str) -> bool:
        return address in self.connected

    async def invoke_oneway(self, address: str, command: Command) -> None:
        if address == "breaks":
            raise RemotingConnectError("it breaks")
        self.sent.append((address, command.code))


class Registration:
    def heartbeat(self) -> Command:
        return Command(RequestCode.BROKER_HEARTBEAT)


def made(client: BreakingConnections, registrations: list[int], *, acts: bool) -> BrokerHeartbeat:
    config = BrokerConfig(broker_heartbeat_interval=100, enable_slave_acting_master=acts)
    return BrokerHeartbeat(
        config,
        client,  # type: ignore[arg-type]
        Registration(),  # type: ignore[arg-type]
        lambda: ["ns1", "breaks", "lost"],
        lambda: registrations.append(1),
    )


async def test_each_name_server_gets_heartbeats():
    client, registrations = BreakingConnections(), list[int]()
    async with running(made(client, registrations, acts=True)):
        await until(lambda: len(client.sent) >= 2)
    assert set(client.sent) == {("ns1", RequestCode.BROKER_HEARTBEAT)}
    assert registrations, "the lost one gets a registration"


async def test_without_the_mode_there_are_none():
    client = BreakingConnections()
    heartbeat = made(client, [], acts=False)
    async with running(heartbeat):
        assert len(heartbeat._tasks) == 0
    assert client.sent == []
