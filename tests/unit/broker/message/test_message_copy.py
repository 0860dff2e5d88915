import pytest

from rocketbroker.broker.message.message_copy import copy_message
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_encoder import encode_record
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_sys_flag import host_flags

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
