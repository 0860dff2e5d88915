import pytest

from rocketbroker.broker.message_copy import copy_message, real_place, with_real_place, without_real_place
from rocketbroker.codec.message.message_const import host_flags
from rocketbroker.codec.message.message_decoder import decode_record, encode_record
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import encode_properties

V4, V6 = host_bytes("127.0.0.1", 10911), host_bytes("2001:db8::1", 10911)
COMPRESSED_AND_COMMITTED = 0x309


@pytest.mark.parametrize("born_host", [V4, V6])
@pytest.mark.parametrize("old_store_host", [V4, V6])
@pytest.mark.parametrize("store_host", [V4, V6])
def test_host_bits_are_those_of_the_new_record(born_host, old_store_host, store_host):
    sys_flag = COMPRESSED_AND_COMMITTED | host_flags(born_host, old_store_host)
    record = encode_record(3, 7, 1, 2, sys_flag, 5, born_host, 6, old_store_host, 2, 0, b"body", b"T", b"a\x01b\x02")
    copy = copy_message(decode_record(record), "U", 1, store_host, properties=b"c\x01d\x02", reconsume_times=9)
    assert copy.sys_flag == COMPRESSED_AND_COMMITTED | host_flags(born_host, store_host)
    assert (copy.topic, copy.queue_id, copy.properties, copy.reconsume_times) == ("U", 1, b"c\x01d\x02", 9)
    assert (copy.body, copy.flag, copy.born_timestamp, copy.born_host) == (b"body", 7, 5, born_host)


def test_a_place_is_found_again_and_taken_away_again():
    plain = encode_properties({"TAGS": "A", "KEYS": "k"})
    raw = with_real_place(plain, "T", 3)
    assert raw == encode_properties({"TAGS": "A", "KEYS": "k", "REAL_TOPIC": "T", "REAL_QID": "3"})
    assert real_place(raw) == ("T", 3)
    assert without_real_place(raw) == plain


def test_the_last_place_counts():
    raw = with_real_place(with_real_place(b"", "first", 1), "second", 2)
    assert real_place(raw) == ("second", 2)
    assert without_real_place(raw) == b""


@pytest.mark.parametrize(
    ("topic", "queue_id"),
    [
        ("T", "-1"),
        ("T", "x"),
        ("T", ""),
        ("T", str(2**31)),
        ("T", "0" * 11),
        ("", "3"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "0"),
    ],
)
def test_no_place(topic, queue_id):
    raw = f"REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}\x02".encode()
    assert real_place(raw) is None
