"""REGISTER_BROKER (103)."""

import asyncio
import threading
import zlib
from collections.abc import Callable

import pytest

from rocketbroker.codec.remoting.bodies.register_broker_body import RegisterBrokerBody, RegistrationLimits
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.topic_config import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
)
from rocketbroker.codec.remoting.headers.namesrv import (
    GetBrokerMemberGroupRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.namesrv.registrations import VERSION_3_0_11, RegistrationRequests
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_answer, recorded_requests

TOPICS = {"T": TopicConfig("T", 2, 3), "U": TopicConfig("U")}
BODY = RegisterBrokerBody(TopicConfigAndMappingSerializeWrapper(TOPICS, DataVersion(1, 1)))


def header(**fields: object) -> RegisterBrokerRequestHeader:
    found = RegisterBrokerRequestHeader("broker-a", "127.0.0.1:10911", "C", "127.0.0.1:10912", 0)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def topics(namesrv: NamesrvFixture) -> list[str]:
    return namesrv.manager.topic_queues.topics()


def test_recorded_registrations_of_master_and_slave(namesrv: NamesrvFixture) -> None:
    slave = next(frame for frame in recorded_requests(103) if frame.sender == "broker-slave")
    namesrv.register_recorded_broker()
    assert len(topics(namesrv)) == 16
    answer = namesrv.replay(slave)
    assert answer.header == RegisterBrokerResponseHeader("127.0.0.1:30912", "127.0.0.1:30911")


def test_a_body_with_another_crc_is_rejected(namesrv: NamesrvFixture) -> None:
    body = BODY.encode()
    crc = zlib.crc32(body) & 0x7FFFFFFF
    answer = namesrv.ask(RequestCode.REGISTER_BROKER, header(body_crc32=crc ^ 1), body)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    assert topics(namesrv) == []
    assert namesrv.ask(RequestCode.REGISTER_BROKER, header(body_crc32=crc), body).code == 0
    assert topics(namesrv) == ["T", "U"]


@pytest.mark.parametrize(("version", "said"), [(401, True), (513, True), (513, False)])
def test_a_compressed_body_whatever_the_header_says(namesrv: NamesrvFixture, version: int, said: bool) -> None:
    body = BODY.encode_compressed()
    fields = header(compressed=said, body_crc32=zlib.crc32(body) & 0x7FFFFFFF)
    assert namesrv.ask(RequestCode.REGISTER_BROKER, fields, body, version).code == 0
    assert topics(namesrv) == ["T", "U"]


def test_a_body_of_a_broker_before_3_0_11(namesrv: NamesrvFixture) -> None:
    body = TopicConfigSerializeWrapper(TOPICS, DataVersion(1, 1)).encode()
    assert namesrv.ask(RequestCode.REGISTER_BROKER, header(), body, VERSION_3_0_11 - 1).code == 0
    assert topics(namesrv) == ["T", "U"]


def test_a_registration_without_topics(namesrv: NamesrvFixture) -> None:
    assert namesrv.ask(RequestCode.REGISTER_BROKER, header()).code == 0
    assert list(namesrv.manager.brokers.by_name) == ["broker-a"]


def test_one_topic_of_a_stranger_is_rejected(namesrv: NamesrvFixture) -> None:
    body = RegisterBrokerBody(TopicConfigAndMappingSerializeWrapper({"T": TopicConfig("T")})).encode()
    answer = namesrv.ask(RequestCode.REGISTER_BROKER, header(), body)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")


def test_the_order_topics_are_in_the_answer(make_namesrv: Callable[..., NamesrvFixture]) -> None:
    for setting, body in (("true", b'{"table":{"T":"broker-a:2"}}'), ("false", b"")):
        namesrv = make_namesrv(returnOrderTopicConfigToBroker=setting)
        put = PutKVConfigRequestHeader("ORDER_TOPIC_CONFIG", "T", "broker-a:2")
        assert namesrv.ask(RequestCode.REGISTER_BROKER, header(), BODY.encode()).body == b""
        namesrv.ask(RequestCode.PUT_KV_CONFIG, put)
        assert namesrv.ask(RequestCode.REGISTER_BROKER, header(), BODY.encode()).body == body


@pytest.mark.parametrize(
    ("fields", "body", "named"),
    [
        ({"broker_name": "../x"}, b"", "brokerName '../x'"),
        ({"cluster_name": ""}, b"", "clusterName ''"),
        ({"broker_addr": "nowhere"}, b"", "brokerAddr 'nowhere'"),
        ({"broker_id": -1}, b"", "brokerId -1"),
        ({"heartbeat_timeout_millis": -5}, b"", "heartbeatTimeoutMillis -5"),
        ({"heartbeat_timeout_millis": 1 << 62}, b"", "heartbeatTimeoutMillis"),
        ({}, b'{"filterServerList":7}', "the body of REGISTER_BROKER cannot be read"),
        ({"compressed": True}, b"\x00\x01", "zlib"),
        ({"compressed": True}, zlib.compress(b"\x7f\xff\xff\xff"), "2147483647 bytes"),
    ],
)
def test_the_fault_is_named(namesrv: NamesrvFixture, fields: dict[str, object], body: bytes, named: str) -> None:
    answer = namesrv.ask(RequestCode.REGISTER_BROKER, header(**fields), body)
    assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR)
    assert named in (answer.remark or "")
    assert namesrv.manager.brokers.by_name == {}


# -- large bodies


def large(count: int = 200) -> bytes:
    configs = {name: TopicConfig(name) for name in (f"Topic-{number}" for number in range(count))}
    return RegisterBrokerBody(TopicConfigAndMappingSerializeWrapper(configs, DataVersion(1, count))).encode()


def registrations(namesrv: NamesrvFixture) -> RegistrationRequests:
    return RegistrationRequests(namesrv.config, namesrv.manager, namesrv.kv_configs, namesrv.executor)


def command(body: bytes, **fields: object) -> Command:
    return replaced_header(request(RequestCode.REGISTER_BROKER, body=body), header(**fields))


def replaced_header(asked: Command, typed: RegisterBrokerRequestHeader) -> Command:
    asked.header = typed
    return asked


async def test_a_large_body_is_read_by_the_thread_and_kept_from_the_connection_s_buffer(
    namesrv: NamesrvFixture,
) -> None:
    reading = threading.Event()
    namesrv.executor.submit(reading.wait)
    asked = command(large())
    answer = registrations(namesrv).register_broker(namesrv.connection, asked)
    asked.body = b""
    reading.set()
    assert isinstance(answer, asyncio.Future)
    assert topics(namesrv) == []
    taken = await answer
    assert taken is not None
    assert taken.code == 0
    assert len(topics(namesrv)) == 200


async def test_a_small_body_waits_for_the_large_ones_before_it(namesrv: NamesrvFixture) -> None:
    namesrv.config.__dict__["delete_topic_with_broker_registration"] = True
    register = registrations(namesrv)
    first = register.register_broker(namesrv.connection, command(large()))
    second = register.register_broker(namesrv.connection, command(BODY.encode()))
    assert isinstance(first, asyncio.Future)
    assert isinstance(second, asyncio.Future)
    await asyncio.gather(first, second)
    assert topics(namesrv) == ["T", "U"]
    assert isinstance(register.register_broker(namesrv.connection, command(BODY.encode())), RemotingCommand)


async def test_bodies_that_wait_are_bounded(make_namesrv: Callable[..., NamesrvFixture]) -> None:
    namesrv = make_namesrv(maxWaitingRegistrationSize=16 << 20)
    register = registrations(namesrv)
    body = large() + b" " * (6 << 20)
    waiting = [register.register_broker(namesrv.connection, command(body)) for _ in range(2)]
    with pytest.raises(BrokerResponseError, match=r"maxWaitingRegistrationSize: 18,9.* exceed the limit of 16,777,216"):
        register.register_broker(namesrv.connection, command(body))
    for answer in waiting:
        assert isinstance(answer, asyncio.Future)
        await answer
    assert isinstance(register.register_broker(namesrv.connection, command(BODY.encode())), RemotingCommand)


async def test_a_large_body_that_has_not_changed_is_not_decoded_again(
    namesrv: NamesrvFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    decode = RegisterBrokerBody.decode_within

    def counted(body: bytes, limits: RegistrationLimits) -> RegisterBrokerBody:
        decoded.append(len(body))
        return decode(body, limits)

    monkeypatch.setattr(RegisterBrokerBody, "decode_within", counted)
    register = registrations(namesrv)

    async def registered(body: bytes, **fields: object) -> int:
        answer = register.register_broker(namesrv.connection, command(body, **fields))
        assert isinstance(answer, asyncio.Future)
        assert (await answer).code == (1 if fields.get("body_crc32") else 0)
        return len(decoded)

    assert [await registered(large()), await registered(large())] == [1, 1]
    namesrv.manager.delete_topic("Topic-7")
    namesrv.manager.wipe_write_perm_of_broker("broker-a")
    assert await registered(large()) == 1
    # As after every registration: a deleted topic comes back, and a permission of an unchanged broker stays wiped.
    assert len(topics(namesrv)) == 200
    assert namesrv.manager.topic_queues.queues("Topic-8")["broker-a"].perm == 4
    assert await registered(large(), body_crc32=1) == 1
    assert await registered(large(), enable_acting_master=True) == 2
    assert await registered(large(201)) == 3
    assert await registered(large()) == 4
    assert len(topics(namesrv)) == 201


async def test_a_broker_that_left_while_its_body_was_read_is_not_registered(namesrv: NamesrvFixture) -> None:
    answer = registrations(namesrv).register_broker(namesrv.connection, command(large()))
    namesrv.connection.close("gone")
    assert isinstance(answer, asyncio.Future)
    with pytest.raises(asyncio.CancelledError):
        await answer
    assert namesrv.manager.brokers.live == {}


@pytest.mark.parametrize(
    ("fields", "settings", "body", "named"),
    [
        ({"ha_server_addr": "x" * 300}, {}, b"", "the haServerAddr 'xxx"),
        ({"ha_server_addr": "a\nb"}, {}, b"", "the haServerAddr 'a\\nb' is not allowed"),
        ({}, {}, b'{"filterServerList":["a\\nb"]}', "the filterServerList 'a\\nb' is not allowed"),
        ({}, {"maxFilterServersPerBroker": 1}, b'{"filterServerList":["a:1","b:1"]}', "maxFilterServersPerBroker: 2"),
        ({}, {"maxTopicsPerBroker": 10}, large(11), "maxTopicsPerBroker: 11 topics exceed the limit of 10"),
        ({}, {"maxRegistrationSize": 65_536}, large(1000), "maxRegistrationSize: "),
        ({"compressed": True}, {"maxRegistrationSize": 65_536}, zlib.compress(bytes(1 << 20)), "65,537 bytes exceed"),
    ],
)
def test_each_limit_of_a_registration_is_named(
    make_namesrv: Callable[..., NamesrvFixture],
    fields: dict[str, object],
    settings: dict[str, object],
    body: bytes,
    named: str,
) -> None:
    namesrv = make_namesrv(**settings)
    answer = namesrv.ask(RequestCode.REGISTER_BROKER, header(**fields), body)
    assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR)
    assert named in (answer.remark or "")
    assert namesrv.manager.brokers.by_name == {}


def test_a_body_of_a_broker_before_3_0_11_has_the_same_limits(make_namesrv: Callable[..., NamesrvFixture]) -> None:
    namesrv = make_namesrv(maxTopicsPerBroker=10)
    configs = {f"T{number}": TopicConfig(f"T{number}") for number in range(11)}
    body = TopicConfigSerializeWrapper(configs, DataVersion(1, 1)).encode()
    answer = namesrv.ask(RequestCode.REGISTER_BROKER, header(), body, VERSION_3_0_11 - 1)
    assert "maxTopicsPerBroker: 11 topics" in (answer.remark or "")


def test_the_recorded_broker_leaves(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    leaving = next(frame for frame in recorded_requests(104) if frame.sender == "broker-master")
    answer = namesrv.replay(leaving)
    assert (answer.code, answer.remark) == (0, None)
    assert namesrv.manager.brokers.by_name == {}
    assert namesrv.manager.topic_queues.topics() == []


def test_a_stranger_is_no_error(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    stranger = next(frame for frame in recorded_requests(104) if frame.scenario.endswith("nobody"))
    assert namesrv.replay(stranger).code == 0
    assert list(namesrv.manager.brokers.by_name) == ["broker-a"]


KNOWN = b'{"counter":0,"stateVersion":0,"timestamp":1795253914353}'
HEADER = QueryDataVersionRequestHeader("broker-a", "127.0.0.1:30911", "DefaultCluster", 0)


def test_the_recorded_question_about_another_version(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    answer = namesrv.replay(recorded_requests(322)[0])
    assert answer.header == QueryDataVersionResponseHeader(changed=True)
    assert answer.body == KNOWN


def test_the_same_version_is_no_change(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    answer = namesrv.ask(RequestCode.QUERY_DATA_VERSION, HEADER, KNOWN)
    assert answer.header == QueryDataVersionResponseHeader(changed=False)


def test_no_version_and_an_unknown_broker_are_changes(namesrv: NamesrvFixture) -> None:
    assert namesrv.ask(RequestCode.QUERY_DATA_VERSION, HEADER, KNOWN).body == b""
    namesrv.register_recorded_broker()
    assert namesrv.ask(RequestCode.QUERY_DATA_VERSION, HEADER).header == QueryDataVersionResponseHeader(changed=True)


def test_asking_is_a_sign_of_life(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    namesrv.clock.advance(100)
    namesrv.ask(RequestCode.QUERY_DATA_VERSION, HEADER, KNOWN)
    namesrv.clock.advance(100)
    namesrv.manager.scan_not_active_broker()
    assert namesrv.manager.brokers.live


def test_a_body_that_is_no_version_is_named(namesrv: NamesrvFixture) -> None:
    answer = namesrv.ask(RequestCode.QUERY_DATA_VERSION, HEADER, b'{"counter":"many"}')
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "the body of the request: DataVersion: " in (answer.remark or "")


def test_a_body_that_is_too_long_for_a_version_is_not_read(namesrv: NamesrvFixture) -> None:
    answer = namesrv.ask(RequestCode.QUERY_DATA_VERSION, HEADER, b"[" + b"[]," * 500 + b"1]")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "has 1,503 bytes; a DataVersion has 1,024 at most" in (answer.remark or "")


def test_the_recorded_heartbeat_keeps_a_broker(namesrv: NamesrvFixture) -> None:
    heartbeat = next(frame for frame in recorded_requests(904) if frame.sender == "broker-master")
    assert heartbeat.command.is_oneway
    namesrv.register_recorded_broker()
    for _ in range(3):
        namesrv.clock.advance(100)
        assert namesrv.replay(heartbeat).code == 0
        namesrv.manager.scan_not_active_broker()
    assert namesrv.manager.brokers.live
    namesrv.clock.advance(121)
    namesrv.manager.scan_not_active_broker()
    assert not namesrv.manager.brokers.live


def test_a_stranger_is_no_error_and_is_not_remembered(namesrv: NamesrvFixture) -> None:
    assert namesrv.replay(recorded_requests(904)[0]).code == 0
    assert not namesrv.manager.brokers.live


def test_the_recorded_question(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    asked = next(frame for frame in recorded_requests(901) if frame.sender == "broker-master")
    answer = namesrv.replay(asked)
    expected = recorded_answer(asked).command
    assert (answer.code, answer.remark, answer.body) == (expected.code, expected.remark, bytes(expected.body))


def test_a_name_of_another_cluster_or_an_unknown_one_has_no_addresses(namesrv: NamesrvFixture) -> None:
    namesrv.ask(RequestCode.REGISTER_BROKER, header())
    for cluster, shown in (("C", b'{0:"127.0.0.1:10911"}'), ("D", b"{}")):
        fields = GetBrokerMemberGroupRequestHeader(cluster, "broker-a")
        assert shown in namesrv.ask(RequestCode.GET_BROKER_MEMBER_GROUP, fields).body
    answer = namesrv.ask(RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupRequestHeader("C", "nobody"))
    assert answer.body == b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"nobody","cluster":"C"}}'


def test_a_broker_is_unregistered_in_its_own_cluster_alone(namesrv: NamesrvFixture) -> None:
    namesrv.ask(RequestCode.REGISTER_BROKER, header())
    for cluster, names in (("D", ["broker-a"]), ("C", [])):
        fields = UnRegisterBrokerRequestHeader("broker-a", "127.0.0.1:10911", cluster, 0)
        assert namesrv.ask(RequestCode.UNREGISTER_BROKER, fields).code == 0
        assert list(namesrv.manager.brokers.by_name) == names
