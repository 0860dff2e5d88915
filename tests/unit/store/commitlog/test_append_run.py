import pytest

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.message.message_encoder import encode_record, magic_code, topic_block
from rocketbroker.codec.message.message_sys_flag import host_flags
from rocketbroker.store.commitlog.append_run import AppendRun
from rocketbroker.store.commitlog.put_message import MessageRun

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
