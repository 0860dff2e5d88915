"""Ids against recorded ones, and what is no id."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message import message_id as ids
from rocketbroker.codec.message.message_id import (
    RecallMessageHandle,
    UniqueIds,
    decode_recall_handle,
    decode_unique_id,
    ip_bytes,
    month_around,
)
from rocketbroker.common.errors import CodecError
from tests.support import golden_store
from tests.support.golden_frames import answers_to

ip = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_golden_offset_ids_parse_to_host_and_offset(name: str) -> None:
    for message in golden_store.manifest(name)["messages"]:
        found = ids.decode_message_id(message["offsetMsgId"])
        assert f"{found.ip}:{found.port}" == message["storeHost"]
        assert found.offset == message["phyOffset"]
        host = ids.host_bytes(found.ip, found.port)
        assert ids.create_message_id(host, found.offset) == message["offsetMsgId"]


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_golden_unique_ids_parse_and_come_back(name: str) -> None:
    seen = 0
    for message in golden_store.manifest(name)["messages"]:
        if len(message["uniqKey"] or "") in {32, 56} and "@" not in message["uniqKey"]:
            found = ids.decode_unique_id(message["uniqKey"])
            again = ids.encode_unique_id(ids.ip_bytes(found.ip), *found[1:])
            assert again == message["uniqKey"]
            seen += 1
    assert seen > 100


@given(ip, st.integers(0, 65535), st.integers(0, (1 << 63) - 1))
def test_offset_ids_round_trip(address: bytes, port: int, offset: int) -> None:
    host = address + port.to_bytes(4, "big")
    text = ids.create_message_id(host, offset)
    assert ids.decode_message_id(text) == (*ids.decode_host(host), offset)
    assert ids.decode_message_id(text.lower()) == ids.decode_message_id(text)
    assert ids.host_bytes(*ids.decode_host(host)) == host


@given(ip, st.integers(0, 65535), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, 65535))
def test_unique_ids_round_trip(address: bytes, pid: int, clazz_hash: int, ms_diff: int, counter: int) -> None:
    text = ids.encode_unique_id(address, pid, clazz_hash, ms_diff, counter)
    assert ids.decode_unique_id(text) == (ids.ip_text(address), pid, clazz_hash, ms_diff, counter)


def test_unique_id_parts_are_cut_to_their_fields() -> None:
    address = bytes(4)
    assert ids.encode_unique_id(address, 0x12345, -1, -1, 0x10001) == "000000002345FFFFFFFFFFFFFFFF0001"[-32:]
    with pytest.raises(CodecError, match="4 or 16 bytes, not 5"):
        ids.encode_unique_id(bytes(5), 0, 0, 0, 0)


@pytest.mark.parametrize("text", ["", "7F00", "G" * 32, "0" * 31, "0" * 57, "0" * 30 + " 0", "\u0660" * 32, "0" * 1000])
def test_an_invalid_id_is_named(text: str) -> None:
    with pytest.raises(CodecError, match="32 or 56 hexadecimal digits"):
        ids.decode_message_id(text)
    with pytest.raises(CodecError, match="is not a unique message id"):
        ids.decode_unique_id(text)


def test_hosts_read_as_text() -> None:
    assert ids.host_text(ids.host_bytes("127.0.0.1", 10911)) == "127.0.0.1:10911"
    assert ids.host_text(ids.host_bytes("::1", 10911)) == "[::1]:10911"


@pytest.mark.parametrize(
    "text", ["", "localhost", "1.2.3", "1.2.3.256", "1.2.3.-4", "1.2.3.0004", "1.2.3.\u0664", "::g"]
)
def test_an_invalid_address_is_named(text: str) -> None:
    with pytest.raises(CodecError, match="neither an IPv4 nor an IPv6 address"):
        ids.ip_bytes(text)


def test_ports_and_lengths_are_held() -> None:
    for port in (-1, 65536):
        with pytest.raises(CodecError, match=r"outside 0\.\.65535"):
            ids.host_bytes("127.0.0.1", port)
    with pytest.raises(CodecError, match="4 or 16 bytes, not 3"):
        ids.ip_text(b"abc")


@pytest.mark.parametrize(
    ("host", "text"),
    [("192.0.2.1", "192.0.2.1:9876"), ("mq.example.com", "mq.example.com:9876"), ("2001:db8::1", "[2001:db8::1]:9876")],
)
def test_only_an_ipv6_address_has_brackets(host, text):
    assert ids.join_address(host, 9876) == text


IP = bytes([192, 0, 2, 2])
TIMES = st.integers(0, 4_000_000_000_000)


def test_an_id_has_address_process_time_and_counter():
    now = 1_700_000_000_000
    generator = UniqueIds(IP, 0x14711, 5, lambda: now)
    first, second = decode_unique_id(generator.create()), decode_unique_id(generator.create())
    assert (first.ip, first.pid, first.counter) == ("192.0.2.2", 0x4711, 0)
    assert first.ms_diff == now - month_around(now)[0]
    assert second == first._replace(counter=1)


def test_ids_of_an_ipv6_machine_are_longer():
    assert len(UniqueIds(ip_bytes("2001:db8::1"), 1, 2, lambda: 0).create()) == 56


def test_ids_differ_also_between_generators():
    generators = [UniqueIds(IP, 1, salt, lambda: 0) for salt in range(4)]
    ids = [generator.create() for generator in generators for _ in range(5000)]
    assert len(set(ids)) == len(ids)


def test_time_counts_from_zero_in_a_new_month():
    now = 1_700_000_000_000
    generator = UniqueIds(IP, 1, 2, lambda: now)
    generator.create()
    now = month_around(now)[1]
    assert decode_unique_id(generator.create()).ms_diff == 0


@given(TIMES)
def test_a_time_lies_in_its_month(time_ms: int):
    start, end = month_around(time_ms)
    assert start <= time_ms < end
    assert 27 < (end - start) / 86_400_000 < 32
    assert datetime.fromtimestamp(start / 1000, tz=UTC).astimezone().day == 1


HANDLE = RecallMessageHandle(
    "GoldenTopic", "broker-a", "1795254111001", "FD0000000000000000000000000000025B5D4E0E2F2A6912F9B3000F"
)
RECORDED = (
    "djEgR29sZGVuVG9waWMgYnJva2VyLWEgMTc5NTI1NDExMTAwMSBGRDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMjVCNUQ0RTBFMkYyQTY5"
    "MTJGOUIzMDAwRg=="
)


def test_recorded_handle():
    assert HANDLE.encode() == RECORDED
    assert decode_recall_handle(RECORDED) == HANDLE
    assert sum(RECORDED.encode() in exchange.request.header() for exchange in answers_to(370)) == 1


def test_characters_of_their_own_and_no_padding():
    handle = RecallMessageHandle("T", "b", "1", "\u00ff\u00fe>>>???")
    encoded = handle.encode()
    assert {"-", "_"} & set(encoded)
    assert decode_recall_handle(encoded.rstrip("=")) == handle


@pytest.mark.parametrize("text", ["", "!", "djE", "djEgVCBi", "\u00e4", "djEg_w==", "djIgVCBiIDEgbQ==", "====", "d"])
def test_a_system_topic_is_not_a_user_topic(text):
    with pytest.raises(CodecError, match="recall handle is invalid"):
        decode_recall_handle(text)


@pytest.mark.parametrize(
    ("address", "host"), [("127.0.0.1:1", "127.0.0.1"), ("[::1]:99", "::1"), ("[fe80::1%eth0]:9", "fe80::1%eth0")]
)
def test_the_host_of_an_address(address: str, host: str):
    assert ids.host_of(address) == host
