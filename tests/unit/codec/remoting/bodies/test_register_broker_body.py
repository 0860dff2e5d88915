import tracemalloc
import zlib
from struct import pack

import pytest

from rocketbroker.codec.remoting.bodies.register_broker_body import V5_0_0, RegisterBrokerBody, RegistrationLimits
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.topic_config import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
)
from rocketbroker.common.errors import CodecError
from tests.support.golden_bodies import request_bodies
from tests.support.golden_frames import requests_of

INFO = TopicQueueMappingInfo("broker-a", {0: 2, 1: 3}, epoch=5, topic="Static", total_queues=4)
BODY = RegisterBrokerBody(
    TopicConfigAndMappingSerializeWrapper(
        {"T": TopicConfig("T", 8, 8, 6, attributes={"a": "b c"}), "U": TopicConfig("U", 1, 1, 4)},
        DataVersion(1, 2, 3),
        topic_queue_mapping_info_map={"Static": INFO},
    ),
    ["127.0.0.1:1"],
)


def sized(block: bytes) -> bytes:
    return pack(">i", len(block)) + block


VERSION = sized(b'{"counter":2,"stateVersion":3,"timestamp":1}')
TOPICS = pack(">i", 1) + sized(b"T 8 8 6 SINGLE_TAG {}")
TAIL = sized(b"[]") + pack(">i", 0)


def decode(stream: bytes, version: int = V5_0_0) -> RegisterBrokerBody:
    return RegisterBrokerBody.decode_compressed(zlib.compress(stream), version)


def test_a_compressed_body_survives():
    assert RegisterBrokerBody.decode_compressed(BODY.encode_compressed(), V5_0_0) == BODY


def test_the_stream_has_the_layout_of_java():
    body = decode(VERSION + TOPICS + TAIL)

    assert body.topic_config_serialize_wrapper.data_version == DataVersion(1, 2, 3)
    assert body.topic_config_serialize_wrapper.topic_config_table == {"T": TopicConfig("T", 8, 8, 6)}
    assert zlib.decompress(body.encode_compressed()) == VERSION + TOPICS + TAIL


def test_static_topics_are_read_from_brokers_of_5_0_0_on():
    older = RegisterBrokerBody.decode_compressed(BODY.encode_compressed(), V5_0_0 - 1)

    assert older.topic_config_serialize_wrapper.topic_queue_mapping_info_map == {}
    assert (
        older.topic_config_serialize_wrapper.topic_config_table
        == BODY.topic_config_serialize_wrapper.topic_config_table
    )
    assert decode(VERSION + TOPICS + sized(b"[]"), V5_0_0 - 1).filter_server_list == []


def test_each_recorded_registration_survives_compression_but_for_what_the_text_has_no_room():
    for golden in request_bodies(103)[::10]:
        body = RegisterBrokerBody.decode(golden.data)
        again = RegisterBrokerBody.decode_compressed(body.encode_compressed(), 513)
        for config in body.topic_config_serialize_wrapper.topic_config_table.values():
            config.order, config.topic_sys_flag = False, 0
        wrapper = body.topic_config_serialize_wrapper
        assert again.topic_config_serialize_wrapper.topic_config_table == wrapper.topic_config_table
        assert again.topic_config_serialize_wrapper.data_version == wrapper.data_version


def test_the_recorded_check_sums_are_of_the_bodies_as_sent():
    checked = 0
    for frame in requests_of(103):
        header = frame.command().header
        if header.get("bodyCrc32", "0") != "0":
            assert zlib.crc32(frame.body()) & 0x7FFFFFFF == int(header["bodyCrc32"])
            checked += 1
    assert checked > 400


@pytest.mark.parametrize("stream", [VERSION + TOPICS + TAIL])
def test_a_stream_cut_at_each_byte_is_rejected(stream: bytes):
    compressed = zlib.compress(stream)
    for end in range(len(stream)):
        with pytest.raises(CodecError):
            decode(stream[:end])
    for end in range(len(compressed)):
        with pytest.raises(CodecError, match="RegisterBrokerBody"):
            RegisterBrokerBody.decode_compressed(compressed[:end], V5_0_0)


@pytest.mark.parametrize(
    ("stream", "cause"),
    [
        (pack(">i", -1), "a part at 4 claims -1 bytes"),
        (pack(">i", 2**31 - 1) + b"x", "a part at 4 claims 2147483647 bytes, beyond the end at 5"),
        (VERSION + pack(">i", 5), "ends at byte"),
        (VERSION + pack(">i", 2**31 - 1), "maxTopicsPerBroker: 2,147,483,647 topics exceed the limit of 100,000"),
        (VERSION + pack(">i", 1) + sized(b'T 8 8 6 SINGLE_TAG {"a":[[]]}'), "are not a table of texts"),
        (VERSION + pack(">i", 1) + sized(b"\xff"), "not UTF-8"),
        (VERSION + pack(">i", 1) + sized(b"T 8"), "is not <name>"),
        (VERSION + TOPICS + sized(b"{}") + pack(">i", 0), "Expected `array`, got `object`"),
        (VERSION + TOPICS + sized(b"[]") + pack(">i", 1) + sized(b"{}"), "has no topic"),
    ],
)
def test_the_fault_in_a_stream_is_named(stream: bytes, cause: str):
    with pytest.raises(CodecError) as caught:
        decode(stream)

    assert cause in str(caught.value)


def test_a_body_that_is_no_stream_is_rejected():
    with pytest.raises(CodecError, match="compressed is true, but the body is not a zlib stream"):
        RegisterBrokerBody.decode_compressed(BODY.encode(), V5_0_0)


def test_a_stream_that_inflates_without_end_is_rejected_before_it_does():
    bomb = zlib.compress(b"\0" * 50_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match="maxRegistrationSize: 1,000,001 bytes exceed the limit of 1,000,000"):
            RegisterBrokerBody.decode_compressed(bomb, V5_0_0, RegistrationLimits(max_size=1_000_000))
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def plain(topics: str, *, infos: str = "{}", details: str = "{}", servers: str = "[]") -> bytes:
    maps = f'"topicQueueMappingInfoMap":{infos},"topicQueueMappingDetailMap":{details}'
    wrapper = f'{{"topicConfigTable":{{{topics}}},{maps}}}'
    return f'{{"topicConfigSerializeWrapper":{wrapper},"filterServerList":{servers}}}'.encode()


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (plain('"T":{},"U":{},"V":{}'), "maxTopicsPerBroker: 3 topics exceed the limit of 2"),
        (plain('"T":{},"U":{},"V":{}', infos='{"T":{"currIdMap":{0:1}}}'), "maxTopicsPerBroker: 3 topics"),
        (plain('"T":{"attributes":[' + "[]," * 2000 + "1]}"), "JSON values (16 a topic) exceed the limit of 1,056"),
        (plain('0:{"attributes":{' + '"a":1,' * 1030 + '"b":2}}'), "JSON values (4 a topic) exceed the limit of 1,032"),
        (plain("", servers='["a:1","b:1"]'), "maxFilterServersPerBroker: 2 filter servers exceed the limit of 1"),
        (plain("", details='{"T":{"a":"' + "x" * 300_000 + '"}}'), "300,014 bytes of one static topic or of details"),
        (plain("", infos='{"T":{"topic":"' + "x" * 300_000 + '"}}'), "300,012 bytes of one static topic or of details"),
        (plain("", servers='["' + "x" * 1_000_000 + '"]'), "maxRegistrationSize: 1,000,1"),
    ],
    ids=["topics", "topics of a dialect", "values", "values of a dialect", "servers", "details", "mapping", "bytes"],
)
def test_each_limit_of_a_body_is_named(body: bytes, cause: str):
    with pytest.raises(CodecError) as caught:
        RegisterBrokerBody.decode_within(
            body, RegistrationLimits(max_size=1_000_000, max_topics=2, max_filter_servers=1)
        )

    assert cause in str(caught.value)


def test_a_body_within_the_limits_is_read_in_each_dialect():
    limits = RegistrationLimits(max_size=1_000, max_topics=2, max_filter_servers=1)
    for infos in ('{"T":{"topic":"T","currIdMap":{0:1}}}', '{"T":{"topic":"T","currIdMap":{"0":1}}}'):
        body = plain('"T":{"perm":4},"U":{"order":null}', infos=infos, servers='["a:1"]')
        wrapper = RegisterBrokerBody.decode_within(body, limits).topic_config_serialize_wrapper
        assert wrapper.topic_config_table == {"T": TopicConfig("", perm=4), "U": TopicConfig("")}
        assert wrapper.topic_queue_mapping_info_map["T"].curr_id_map == {0: 1}


def test_recorded_registrations_are_read_alike_with_and_without_limits():
    for golden in request_bodies(103)[::10]:
        assert RegisterBrokerBody.decode_within(golden.data, RegistrationLimits()) == RegisterBrokerBody.decode(
            golden.data
        )
