"""Arrow columns of pulled messages. A pull is answered with records as they are in the CommitLog."""

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.columns.arrow_columns import with_properties
from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.message_columns import message_batches
from rocketbroker.analytics.columns.message_schema import DECOMPRESSED_BODY, MESSAGE_SCHEMA, field
from rocketbroker.analytics.files.commit_log_files import LogFile
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.spark.broker_queues import queue_name, record_bounds
from rocketbroker.codec.message.message_const import COMPRESSED_FLAG, INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.common.errors import StoreError

_BATCH: Final = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
_OTHER_COMMENTS: Final = {
    "broker": "name of the broker",
    "sys_flag": "bits of MessageSysFlag, without that of a compressed body",
    "body": "the body, decompressed; null if it cannot be decompressed",
}
#: Name and type of every column of the format ``rocketmq``: those of the table ``messages``.
PULLED_SCHEMA: Final = pa.schema(
    [
        field(each.name, each.type, _OTHER_COMMENTS.get(each.name) or each.metadata[b"comment"].decode())
        for each in MESSAGE_SCHEMA
    ]
)


def pulled_records(queue: MessageQueue, body: bytes) -> Records:
    """Return the records in the answer to a pull.

    Raises:
        StoreError: the answer has other bytes, or a record with several messages.
    """
    *starts, end = record_bounds(body)
    records = Records(0, np.frombuffer(body, np.uint8), np.array(starts, np.int64))
    sound = records.sound_each(records.physical_offset)
    if end != len(body) or not sound.all():
        number = int(np.argmin(sound)) if not sound.all() else len(starts) - 1
        raise StoreError(f"{queue_name(queue)}: the broker's answer has no valid record at byte {starts[number]}")
    if (records.sys_flag & _BATCH == _BATCH).any():
        raise StoreError(
            f"{queue_name(queue)} has batches stored as one record (queue.type=BatchCQ), which cannot be pulled one by "
            'one; read them from the store by format("rocketmq_store")'
        )
    return records


def pulled_batches(
    queue: MessageQueue, records: Records, schema: pa.Schema, properties: Collection[str] | None
) -> Iterator[pa.RecordBatch]:
    """Yield the messages with the columns and types of ``schema``; ``properties`` are those to keep, all if None.

    Bodies with a wrong checksum are logged.
    """
    if not len(records):
        return
    is_compressed = bool((records.sys_flag & COMPRESSED_FLAG).any())
    names = [DECOMPRESSED_BODY if is_compressed and name == "body" else name for name in schema.names]
    stored = pa.schema([each.with_name(name) for each, name in zip(schema, names, strict=True)])
    log = LogFile(StoreRoot(queue.broker_name, f"rocketmq://{queue.broker_name}"), "", 0, 0, 0)
    for batch in message_batches(records, log, stored, DecodeReport(), check_crc="body" in schema.names):
        columns = dict(zip(schema.names, batch.columns, strict=True))
        if is_compressed and "sys_flag" in columns:
            columns["sys_flag"] = pc.bit_wise_and(columns["sys_flag"], pa.scalar(~COMPRESSED_FLAG, pa.int32()))
        yield with_properties(pa.RecordBatch.from_arrays(list(columns.values()), schema=schema), properties)
