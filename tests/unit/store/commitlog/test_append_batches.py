import pytest

from rocketbroker.codec.message.alike_messages import alike_messages
from rocketbroker.codec.message.message_batch import encode_batch, split_batch
from rocketbroker.codec.message.message_const import host_flags
from rocketbroker.codec.message.message_decoder import magic_code, topic_block
from rocketbroker.codec.storefile.consume_queue_layout import ENTRY
from rocketbroker.store.commitlog.append_batches import AppendBatches, queue_entries
from rocketbroker.store.commitlog.message_ext_encoder import AppendBatch
from rocketbroker.store.commitlog.put_message import BatchRun
from tests.support.stores import V4_HOST, V6_HOST, message

NOW = 1_795_255_162_829


@pytest.mark.parametrize("behind", [b"\x02TAGS\x01T\x02", b""], ids=["in the middle", "at the end"])
@pytest.mark.parametrize("body", [b"body %d", b""])
@pytest.mark.parametrize("topic", ["T", "é" * 80])
@pytest.mark.parametrize("born_host", [V4_HOST, V6_HOST], ids=["born4", "born6"])
@pytest.mark.parametrize("store_host", [V4_HOST, V6_HOST], ids=["store4", "store6"])
def test_batches_are_the_records_of_each(topic: str, born_host: bytes, store_host: bytes, body: bytes, behind: bytes):
    counts, queue_ids, queue_offsets, born = [2, 1, 3], [3, 0, 3], [40, 7, 42], [NOW, NOW + 1, NOW - 5]
    bodies = [
        encode_batch(
            (-7, body % each if body else b"", b"UNIQ_KEY\x01%d%d" % (number, each) + behind) for each in range(count)
        )
        for number, count in enumerate(counts)
    ]
    found = alike_messages(bodies)
    assert found is not None
    flags = host_flags(born_host, store_host) | 1
    run = BatchRun(topic, queue_ids, counts, born, found, flags, born_host, 2)
    expected, offset, offsets = [], 1 << 33, []
    for number, data in enumerate(bodies):
        shared = message(
            topic=topic, queue_id=queue_ids[number], born_host=born_host, store_host=store_host, sys_flag=1
        )
        shared.born_timestamp, shared.reconsume_times = born[number], 2
        records, its_offsets = AppendBatch(shared, split_batch(data)).encode(
            offset, queue_offsets[number], NOW + 9, store_host
        )
        expected.append(records)
        offsets += its_offsets
        offset += len(records)

    encoder = AppendBatches(run, topic_block(topic.encode()), magic_code(len(topic.encode())))
    encoded, offsets_found = encoder.encode(1 << 33, queue_offsets, NOW + 9, store_host)

    assert bytes(encoded) == b"".join(expected)
    assert list(offsets_found) == offsets
    assert encoder.total == len(encoded)
    assert list(encoder.sizes) == [encoder.size] == [len(encoded) // 6]


def test_entries_of_records_that_follow_each_other():
    assert queue_entries(1 << 33, 300, 3, -5) == b"".join(ENTRY.pack((1 << 33) + 300 * n, 300, -5) for n in range(3))
