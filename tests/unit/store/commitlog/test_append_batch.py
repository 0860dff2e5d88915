import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.message_batch import BatchParts, encode_batch, split_batch
from rocketbroker.codec.message.message_encoder import encode_record
from rocketbroker.store.commitlog.append_batch import AppendBatch
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
