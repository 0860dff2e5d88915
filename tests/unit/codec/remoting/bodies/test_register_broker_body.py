import zlib
from struct import pack

import pytest

from rocketbroker.codec.remoting.bodies import register_broker_body
from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.register_broker_body import V5_0_0, RegisterBrokerBody
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig, TopicConfigAndMappingSerializeWrapper
from rocketbroker.common.errors import CodecError
from tests.support.golden_bodies import request_bodies
from tests.support.golden_frames import requests_of

INFO = {"bname": "broker-a", "currIdMap": {}, "dirty": False, "epoch": 5, "topic": "Static", "totalQueues": 4}
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
def test_a_stream_cut_at_each_byte_is_refused(stream: bytes):
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
        (pack(">i", -1), "-1 bytes at 4 claimed"),
        (pack(">i", 2**31 - 1) + b"x", "2147483647 bytes at 4 claimed, of 5"),
        (VERSION + pack(">i", 2**31 - 1), "ends at byte"),
        (VERSION + pack(">i", 1) + sized(b"\xff"), "not UTF-8"),
        (VERSION + pack(">i", 1) + sized(b"T 8"), "is not <name>"),
        (VERSION + TOPICS + sized(b"{}") + pack(">i", 0), "filterServerList is dict, not a list"),
        (VERSION + TOPICS + sized(b"[]") + pack(">i", 1) + sized(b"{}"), "has no topic"),
    ],
)
def test_what_is_wrong_in_a_stream_is_named(stream: bytes, cause: str):
    with pytest.raises(CodecError) as caught:
        decode(stream)

    assert cause in str(caught.value)


def test_a_body_that_is_no_stream_is_refused():
    with pytest.raises(CodecError, match=r"no zlib stream .* though compressed is true"):
        RegisterBrokerBody.decode_compressed(BODY.encode(), V5_0_0)


def test_a_stream_that_inflates_without_end_is_refused_before_it_does(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(register_broker_body, "MAX_INFLATED", 1_000_000)
    bomb = zlib.compress(b"\0" * 10_000_000)

    with pytest.raises(CodecError, match="more than the 1000000 bytes allowed"):
        RegisterBrokerBody.decode_compressed(bomb, V5_0_0)
