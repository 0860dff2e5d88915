"""Records that the encoder accepts and rejects, and the positions of their fields."""

import hashlib
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message import message_decoder as encoder
from rocketbroker.codec.message.message_decoder import decode_messages, decode_record, peek
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.common.errors import CodecError, CorruptRecordError
from tests.support import golden_store

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
        0: (">i", len(record)),
        4: (">I", encoder.MESSAGE_MAGIC_CODE_V1),
        encoder.BODY_CRC_POSITION: (">I", encoder.body_crc(b"body")),
        12: (">i", 1),
        16: (">i", 2),
        encoder.QUEUE_OFFSET_POSITION: (">q", 3),
        encoder.PHYSICAL_OFFSET_POSITION: (">q", 4),
        encoder.SYS_FLAG_POSITION: (">i", 0),
        40: (">q", 5),
        encoder.STORE_TIMESTAMP_POSITION: (">q", 6),
        72: (">i", 7),
        76: (">q", 8),
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


HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def sample(
    body: bytes = b"hello", topic: bytes = b"T", properties: bytes = b"TAGS\x01A\x02", sys_flag: int = 0
) -> bytes:
    return encoder.encode_record(1, 2, 3, 4, sys_flag, 5, HOST, 6, HOST, 7, 8, body, topic, properties)


def with_int(record: bytes, at: int, value: int, form: str = ">i") -> bytes:
    spoilt = bytearray(record)
    struct.pack_into(form, spoilt, at, value)
    return bytes(spoilt)


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_every_golden_record_decodes_to_what_its_manifest_says(name: str) -> None:
    records = golden_store.records(name)
    wanted = golden_store.manifest(name)["messages"]
    assert len(records) == len(wanted) > 150
    for (offset, record), want in zip(records, wanted, strict=True):
        message = decode_record(memoryview(record), check_crc=True)
        assert message.commit_log_offset == offset
        assert {
            "magic": {encoder.MESSAGE_MAGIC_CODE_V1: "V1", encoder.MESSAGE_MAGIC_CODE_V2: "V2"}[message.magic],
            "size": message.store_size,
            "topic": message.topic,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "flag": message.flag,
            "sysFlag": message.sys_flag,
            "bodyCRC": message.body_crc,
            "bornTimestamp": message.born_timestamp,
            "bornHost": message.born_host_text.replace("[", "").replace("]", ""),
            "storeTimestamp": message.store_timestamp,
            "storeHost": message.store_host_text.replace("[", "").replace("]", ""),
            "reconsumeTimes": message.reconsume_times,
            "preparedTransactionOffset": message.prepared_transaction_offset,
            "bodyLen": message.body_length,
            "body_sha1": hashlib.sha1(message.body).hexdigest(),
            "tags": message.tags,
            "keys": message.get_property("KEYS"),
            "uniqKey": message.uniq_key,
            "offsetMsgId": message.offset_msg_id,
            "properties": message.properties,
        } == {key: want[key] for key in want if key not in NOT_IN_A_RECORD}


NOT_IN_A_RECORD = {
    "phyOffset",
    "bodyCRC_ok",
    "properties_trailing_02",
    "body_hex",
    "cqTagCode",
    "cqTagCode_kind",
    "kind",
}


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_every_golden_record_encodes_back_to_its_bytes(name: str) -> None:
    for _, record in golden_store.records(name):
        assert encoder.encode_message(decode_record(record)) == record


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_a_golden_record_cut_at_any_byte_is_corrupt_and_nothing_else(name: str) -> None:
    for _, record in golden_store.records(name):
        view = memoryview(record)
        for length in range(len(record)):
            with pytest.raises(CorruptRecordError):
                decode_record(view, end=length)


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_records_back_to_back_are_a_pull_body(name: str) -> None:
    records = [record for _, record in golden_store.records(name)[:20]]
    messages = decode_messages(b"".join(records))
    assert [message.store_size for message in messages] == [len(record) for record in records]
    with pytest.raises(CorruptRecordError, match=f"at {len(records[0])}: "):
        decode_messages(records[0] + records[1][:-1])


def test_the_blank_is_seen_and_no_record() -> None:
    blank = golden_store.manifest("clean")["blanks"][0]
    data = golden_store.files("clean")["commitlog/" + blank["file"]]
    assert peek(data, blank["pos"]) == (blank["size"], encoder.BLANK_MAGIC_CODE)
    with pytest.raises(CorruptRecordError, match="BLANK"):
        decode_record(data, blank["pos"])


def test_a_compressed_body_is_unpacked_on_request_only() -> None:
    wanted = golden_store.manifest("clean")["messages"]
    number = next(n for n, want in enumerate(wanted) if want["sysFlag"] == 0x301)
    record = golden_store.records("clean")[number][1]
    sent = next(s for s in golden_store.manifest("clean")["sent"] if s["msgId"] == wanted[number]["uniqKey"])
    stored, unpacked = decode_record(record), decode_record(record, decompress=True)
    assert (stored.sys_flag, len(stored.body)) == (0x301, stored.body_length)
    assert unpacked.sys_flag == 0x300
    assert hashlib.sha1(unpacked.body).hexdigest() == sent["body_sha1_uncompressed"]


def test_a_body_left_unread_still_has_its_checksum_held() -> None:
    record = sample()
    message = decode_record(record, read_body=False, check_crc=True)
    assert (message.body, message.body_length) == (b"", 5)
    spoilt = record.replace(b"hello", b"jello")
    assert decode_record(spoilt).body == b"jello"
    with pytest.raises(CorruptRecordError, match="bodyCRC"):
        decode_record(spoilt, read_body=False, check_crc=True)


def test_decoding_begins_and_ends_at_the_given_positions() -> None:
    record = sample()
    padded = b"\xff" * 7 + record + b"\xff" * 9
    assert decode_record(padded, 7, end=7 + len(record)) == decode_record(record)
    with pytest.raises(CorruptRecordError, match="record at 7: totalSize"):
        decode_record(padded, 7, end=6 + len(record))
    with pytest.raises(CorruptRecordError, match="at -1"):
        decode_record(padded, -1)


@pytest.mark.parametrize(
    ("spoilt", "cause"),
    [
        pytest.param(with_int(sample(), 4, 0x12345678), "magic code 0x12345678 is unknown", id="magic"),
        pytest.param(bytes(120), "magic code 0x00000000", id="zeros"),
        pytest.param(with_int(sample(), 0, -1), "totalSize is -1", id="negative size"),
        pytest.param(with_int(sample(), 0, 50), "fixed fields alone", id="size below the fixed fields"),
        pytest.param(with_int(sample(), 0, 0x7FFFFFFF), "bytes are left", id="size over the buffer"),
        pytest.param(with_int(sample(), 84, -1), "bodyLength is -1", id="negative body"),
        pytest.param(with_int(sample(), 84, 0x7FFFFFFF), "bodyLength is 2147483647", id="huge body"),
        pytest.param(with_int(sample(), 84, 6), "topicLength", id="body one byte longer"),
        pytest.param(with_int(sample(), 93, 255, ">B"), "topicLength is 255", id="huge topic"),
        pytest.param(with_int(sample(), 95, -1, ">h"), "propertiesLength is -1", id="negative properties"),
        pytest.param(with_int(sample(), 95, 6, ">h"), "propertiesLength is 6", id="properties shorter than the record"),
        pytest.param(with_int(sample(), 36, 0x30), "fixed fields alone", id="IPv6 bits without IPv6 hosts"),
        pytest.param(sample(b"no zlib", sys_flag=1), "not a zlib stream", id="body that does not unpack"),
    ],
)
def test_a_record_that_contradicts_itself_is_named(spoilt: bytes, cause: str) -> None:
    with pytest.raises(CorruptRecordError, match=r"^message record at 0: ") as caught:
        decode_record(spoilt, decompress=True)
    assert cause in str(caught.value)


@given(st.binary(max_size=300), st.integers(0, 300), st.booleans())
def test_any_bytes_decode_or_are_corrupt(data: bytes, offset: int, marked: bool) -> None:
    if marked and len(data) >= 8:
        data = struct.pack(">iI", len(data), encoder.MESSAGE_MAGIC_CODE_V1) + data[8:]
        offset = 0
    with suppress(CorruptRecordError):
        decode_record(data, offset, check_crc=True, decompress=True)


@given(st.data())
def test_a_golden_record_with_any_byte_changed_decodes_or_is_corrupt(data: st.DataObject) -> None:
    record = bytearray(data.draw(st.sampled_from(golden_store.records("clean")))[1])
    for _ in range(data.draw(st.integers(1, 4))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = decode_record(record, decompress=True)
    except CorruptRecordError:
        return
    assert message.store_size == len(record)


int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
host = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))


@st.composite
def messages(draw: st.DrawFn) -> MessageExt:
    topic = draw(st.text(max_size=100))
    body, properties = draw(st.binary(max_size=100)), draw(st.binary(max_size=100))
    born_host, store_host = draw(host), draw(host)
    sys_flag = draw(int32) & ~0x30 | (0x10 if len(born_host) == 20 else 0) | (0x20 if len(store_host) == 20 else 0)
    size = encoder.record_size(len(body), len(topic.encode()), len(properties), sys_flag=sys_flag)
    return MessageExt(
        topic,
        draw(int32),
        draw(int64),
        draw(int64),
        size,
        body,
        properties,
        draw(int32),
        sys_flag,
        encoder.body_crc(body),
        draw(int64),
        born_host,
        draw(int64),
        store_host,
        draw(int32),
        draw(int64),
        len(body),
        encoder.magic_code(len(topic.encode())),
    )


@given(messages())
def test_encoding_and_decoding_are_inverse(message: MessageExt) -> None:
    record = encoder.encode_message(message)
    assert decode_record(record, check_crc=True) == message
    assert len(record) == message.store_size
