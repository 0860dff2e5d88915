import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_batch import BatchParts, encode_batch, split_batch
from rocketbroker.codec.message.message_const import host_flags
from rocketbroker.codec.message.message_decoder import encode_record, magic_code, topic_block
from rocketbroker.store.commitlog.message_ext_encoder import AppendBatch, AppendRun
from rocketbroker.store.commitlog.put_message import MessageRun
from tests.support.stores import V4_HOST, V6_HOST, message

PARTS = BatchParts(
    flags=[0, -7, 2**31 - 1],
    bodies=[b"", b"one", b"x" * 1000],
    properties=[b"", b"TAGS\x01a\x02", b"KEYS\x01k\x02"],
)


@pytest.mark.parametrize("topic", ["T", "%RETRY%" + "g" * 200, "é" * 80])
@pytest.mark.parametrize("born_host", [V4_HOST, V6_HOST], ids=["born4", "born6"])
@pytest.mark.parametrize("store_host", [V4_HOST, V6_HOST], ids=["store4", "store6"])
def test_a_batch_is_its_records_one_after_the_other(topic: str, born_host: bytes, store_host: bytes):
    shared = message(
        topic=topic,
        queue_id=3,
        born_host=born_host,
        store_host=store_host,
        sys_flag=1,
        born_timestamp=1_795_255_162_829,
        reconsume_times=2,
    )
    expected = []
    offset, offsets = 1 << 33, []
    for number, (flag, body, properties) in enumerate(PARTS.messages()):
        record = encode_record(
            3,
            flag,
            40 + number,
            offset,
            shared.sys_flag,
            shared.born_timestamp,
            born_host,
            1_795_255_162_900,
            store_host,
            2,
            0,
            body,
            topic.encode(),
            properties,
        )
        expected.append(record)
        offsets.append(offset)
        offset += len(record)

    batch = AppendBatch(shared, PARTS)
    found, found_offsets = batch.encode(1 << 33, 40, 1_795_255_162_900, store_host)

    assert batch.sizes == [len(record) for record in expected]
    assert batch.total == len(found)
    assert found == b"".join(expected)
    assert found_offsets == offsets


@given(
    st.integers(0, 20), st.integers(0, 20), st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=40)
)
def test_messages_of_equal_lengths_give_the_same_bytes(body_length: int, properties_length: int, flags: list[int]):
    messages = [(flag, bytes([n]) * body_length, bytes([n]) * properties_length) for n, flag in enumerate(flags)]
    alike = split_batch(encode_batch(messages))
    assert alike.lengths == (body_length, properties_length)
    one_by_one = BatchParts(alike.flags, alike.bodies, alike.properties)

    batches = [AppendBatch(message(topic="T"), parts) for parts in (alike, one_by_one)]

    assert batches[0].sizes == batches[1].sizes
    first, second = [batch.encode(1 << 33, 40, 1_795_255_162_900, V4_HOST) for batch in batches]
    assert first == second


V4, V6 = bytes([127, 0, 0, 1, 0, 0, 42, 159]), bytes(range(20))


@pytest.mark.parametrize("store_host", [V4, V6])
@pytest.mark.parametrize("born_host", [V4, V6])
@pytest.mark.parametrize("topic", ["T", "t" * 127, "t" * 128])
def test_records_are_those_of_single_messages(topic: str, born_host: bytes, store_host: bytes):
    flags = host_flags(born_host, store_host) | 1
    bodies: list[ReadableBuffer] = [b"", b"one", memoryview(b"other"), b"x" * 300]
    properties = [b"", b"a\x01b\x02", b"c\x01d\x02", b"p" * 100]
    queue_ids, queue_offsets, born = [3, 0, 3, 7], [5, 2**33, 6, 0], [0, 1, 2**40, 3]
    run = MessageRun(topic, queue_ids, bodies, properties, born, [], -7, flags, born_host, 2)
    records = AppendRun(run, topic_block(topic.encode()), magic_code(len(topic)))

    encoded, offsets = records.encode(2**35, queue_offsets, 2**41, store_host)

    expected = b""
    for queue_id, body, raw, queue_offset, time in zip(queue_ids, bodies, properties, queue_offsets, born, strict=True):
        place = 2**35 + len(expected)
        assert offsets[0] == place
        del offsets[0]
        expected += encode_record(
            queue_id,
            -7,
            queue_offset,
            place,
            flags,
            time,
            born_host,
            2**41,
            store_host,
            2,
            0,
            body,
            topic.encode(),
            raw,
        )
    assert encoded == expected
    assert records.total == len(expected) == sum(records.sizes)
