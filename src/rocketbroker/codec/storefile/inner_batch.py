"""Fields of a record that the entry of a batch queue needs (CommitLog.setBatchSizeIfNeeded)."""

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.message.message_const import PROPERTY_INNER_NUM
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.message_sys_flag import INNER_BATCH_FLAG
from rocketbroker.codec.storefile.consume_queue_layout import MOST_IN_INNER_BATCH


def inner_count(sys_flag: int, properties: bytes) -> int:
    """Return the number of messages in a record: ``INNER_NUM`` of a batch, else 1.

    An ``INNER_NUM`` that is not a number from 1 to 32,767 counts as 1.
    """
    if not sys_flag & INNER_BATCH_FLAG:
        return 1
    text = get_property(properties, PROPERTY_INNER_NUM.encode()) or b""
    count = int(text) if text.isdigit() and len(text) <= len(str(MOST_IN_INNER_BATCH)) else 1
    return count if 1 <= count <= MOST_IN_INNER_BATCH else 1


def inner_batch(record: ReadableBuffer) -> tuple[int, int]:
    """Return the store time in ms of a record and the number of messages in it.

    Raises:
        CorruptRecordError: It is not a record.
    """
    message = decode_record(record, read_body=False)
    return message.store_timestamp, inner_count(message.sys_flag, message.properties_bytes)
