"""What the record writer takes, refuses and promises about positions."""

import struct

import pytest

from rocketbroker.codec.message import message_encoder as encoder
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.common.errors import CodecError

V4 = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
V6 = bytes(15) + b"\x01" + bytes([0, 0, 0x2A, 0x9F])


def encode(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "queue_id": 1,
        "flag": 2,
        "queue_offset": 3,
        "physical_offset": 4,
        "sys_flag": 0,
        "born_timestamp": 5,
        "born_host": V4,
        "store_timestamp": 6,
        "store_host": V4,
        "reconsume_times": 7,
        "prepared_transaction_offset": 8,
        "body": b"body",
        "topic_bytes": b"Topic",
        "properties_bytes": b"",
    }
    return encoder.encode_record(**(fields | changes))  # type: ignore[arg-type]


def test_the_positions_are_those_of_the_fields() -> None:
    record = encode(body=b"body")
    assert encoder.RECORD_HEAD.size == encoder.BODY_POSITION == 88
    expected = {
        encoder.TOTAL_SIZE_POSITION: (">i", len(record)),
        encoder.MAGIC_CODE_POSITION: (">I", encoder.MESSAGE_MAGIC_CODE_V1),
        encoder.BODY_CRC_POSITION: (">I", encoder.body_crc(b"body")),
        encoder.QUEUE_ID_POSITION: (">i", 1),
        encoder.FLAG_POSITION: (">i", 2),
        encoder.QUEUE_OFFSET_POSITION: (">q", 3),
        encoder.PHYSICAL_OFFSET_POSITION: (">q", 4),
        encoder.SYS_FLAG_POSITION: (">i", 0),
        encoder.BORN_TIMESTAMP_POSITION: (">q", 5),
        encoder.STORE_TIMESTAMP_POSITION: (">q", 6),
        encoder.RECONSUME_TIMES_POSITION: (">i", 7),
        encoder.PREPARED_TRANSACTION_OFFSET_POSITION: (">q", 8),
        encoder.BODY_LENGTH_POSITION: (">i", 4),
    }
    found = {at: (form, struct.unpack_from(form, record, at)[0]) for at, (form, _) in expected.items()}
    assert found == expected
    assert record[encoder.BORN_HOST_POSITION :][:8] == record[encoder.STORE_HOST_POSITION :][:8] == V4
    assert record[88:] == b"body\x05Topic\x00\x00"
    assert encoder.OFFSETS.unpack_from(record, encoder.QUEUE_OFFSET_POSITION) == (3, 4)


@pytest.mark.parametrize(
    ("born", "store", "sys_flag", "head"),
    [(V4, V4, 0, 88), (V6, V4, 0x10, 100), (V4, V6, 0x20, 100), (V6, V6, 0x30, 112)],
)
def test_each_mix_of_hosts_has_its_head(born: bytes, store: bytes, sys_flag: int, head: int) -> None:
    record = encode(born_host=born, store_host=store, sys_flag=sys_flag)
    assert len(record) == encoder.record_size(4, 5, 0, sys_flag=sys_flag) == head + 4 + 1 + 5 + 2
    message = decode_record(record)
    assert (message.born_host, message.store_host, message.body) == (born, store, b"body")
    for wrong in {0, 0x10, 0x20, 0x30} - {sys_flag}:
        with pytest.raises(CodecError, match="do not fit the IPv6 bits"):
            encode(born_host=born, store_host=store, sys_flag=wrong)


@pytest.mark.parametrize(
    ("length", "magic"),
    [(127, encoder.MESSAGE_MAGIC_CODE_V1), (128, encoder.MESSAGE_MAGIC_CODE_V2), (300, encoder.MESSAGE_MAGIC_CODE_V2)],
)
def test_a_topic_over_127_bytes_makes_the_record_v2(length: int, magic: int) -> None:
    record = encode(topic_bytes=b"t" * length)
    assert struct.unpack_from(">I", record, 4)[0] == magic == encoder.magic_code(length)
    assert len(record) == encoder.record_size(4, length, 0)
    assert decode_record(record).topic == "t" * length


def test_lengths_a_record_cannot_say_are_rejected() -> None:
    assert decode_record(encode(properties_bytes=b"p" * 32767)).properties_bytes == b"p" * 32767
    with pytest.raises(CodecError, match="properties take 32768 bytes"):
        encode(properties_bytes=b"p" * 32768)
    with pytest.raises(CodecError, match="topic takes 32768 bytes"):
        encode(topic_bytes=b"t" * 32768)
    with pytest.raises(CodecError, match="hosts of 7 and 8 bytes"):
        encode(born_host=V4[:7])


@pytest.mark.parametrize("field", ["queue_id", "flag", "reconsume_times", "queue_offset", "store_timestamp"])
def test_a_number_outside_its_field_is_rejected(field: str) -> None:
    with pytest.raises(CodecError, match="does not fit its field"):
        encode(**{field: 1 << 63})


def test_the_checksum_has_no_sign_and_may_be_given() -> None:
    assert encoder.body_crc(b"a") == 0xE8B7BE43 & 0x7FFFFFFF
    assert struct.unpack_from(">I", encode(crc=77), 8)[0] == 77


def test_a_blank_says_how_much_it_covers() -> None:
    assert encoder.encode_blank(16) == b"\x00\x00\x00\x10\xcb\xd4\x31\x94"
    with pytest.raises(CodecError, match="needs 8 bytes, but 7 are left"):
        encoder.encode_blank(7)
