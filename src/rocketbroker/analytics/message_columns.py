"""Arrow columns of the records of a window, each made only if it is asked for."""

import ipaddress
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketbroker.analytics.property_columns import properties_map, property_values
from rocketbroker.codec.byte_columns import Positions, gather
from rocketbroker.codec.message.message_const import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
)
from rocketbroker.codec.message.message_encoder import BORN_HOST_POSITION
from rocketbroker.codec.message.message_sys_flag import (
    BORNHOST_V6_FLAG,
    HOST_V4_LENGTH,
    HOST_V6_LENGTH,
    STOREHOSTADDRESS_V6_FLAG,
)
from rocketbroker.codec.storefile.record_columns import Records

# Years 1 to 9999 in ms since 1970: the timestamps that Spark and Python can show. A producer may send any int64.
_MIN_MS: Final = -62_135_596_800_000
_MAX_MS: Final = 253_402_300_799_999
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def message_batch(records: Records, schema: pa.Schema) -> pa.RecordBatch:
    """``records`` with the columns and types of ``schema`` (see :func:`message_schema.check_schema`)."""
    source = _Source(records)
    return pa.RecordBatch.from_arrays([_column(source, field) for field in schema], schema=schema)


class _Source:
    """Records, and their properties as text once a column needed them."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self._properties: pa.Array | None = None

    @property
    def properties(self) -> pa.Array:
        if self._properties is None:
            records = self.records
            self._properties = _text(slices(records, records.properties_at, records.properties_length))
        return self._properties


def _column(source: _Source, field: pa.Field) -> pa.Array:
    if field.name.endswith("_timestamp"):
        return _timestamps(source.records, field)
    if field.name in _FIXED:
        return pa.array(source.records.field(_FIXED[field.name]).astype(field.type.to_pandas_dtype()))
    return _MADE[field.name](source)


#: Columns that are a field of ``codec.storefile.dtypes.RECORD_HEAD``.
_FIXED: Final = {
    "queue_id": "queue_id",
    "queue_offset": "queue_offset",
    "physical_offset": "physical_offset",
    "flag": "flag",
    "sys_flag": "sys_flag",
    "reconsume_times": "reconsume_times",
    "prepared_transaction_offset": "prepared_transaction_offset",
    "body_crc": "body_crc",
    "size": "total_size",
}


def _timestamps(records: Records, field: pa.Field) -> pa.Array:
    """Milliseconds as stored for an int64 field; else a timestamp, null outside the years 1 to 9999."""
    millis = records.field(field.name).astype(np.int64)
    if pa.types.is_integer(field.type):
        return pa.array(millis)
    outside = (millis < _MIN_MS) | (millis > _MAX_MS)
    return pa.array(np.where(outside, 0, millis) * 1000, mask=outside).cast(field.type)


def slices(records: Records, at: Positions, lengths: Positions) -> pa.Array:
    """The bytes at ``at`` of the window, as an Arrow binary array."""
    # A binary array over the window itself has these slices as every second element, what lies between as the others.
    offsets = np.empty(2 * len(at), np.int32)
    offsets[0::2], offsets[1::2] = at, at + lengths
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(records.data)]
    both = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    return both.take(pa.array(np.arange(0, len(offsets), 2)))


def _text(values: pa.Array) -> pa.Array:
    """``values`` as strings; bytes that are no UTF-8 become U+FFFD, as in Java."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in values.to_pylist()], pa.string())


def _topic(source: _Source) -> pa.Array:
    records = source.records
    return _text(slices(records, records.topic_at, records.topic_length))


def _body(source: _Source) -> pa.Array:
    records = source.records
    return slices(records, records.body_at, records.body_length)


def _born_host(source: _Source) -> pa.Array:
    records = source.records
    return _hosts(records, records.starts + BORN_HOST_POSITION, records.sys_flag & BORNHOST_V6_FLAG)


def _store_host(source: _Source) -> pa.Array:
    records = source.records
    return _hosts(records, records.store_host_at, records.sys_flag & STOREHOSTADDRESS_V6_FLAG)


def _hosts(records: Records, at: Positions, v6: NDArray[Any]) -> pa.Array:
    """Hosts as ``address:port``. They repeat a lot, so each different one is put into text once."""
    raw = slices(records, at, np.where(v6, HOST_V6_LENGTH, HOST_V4_LENGTH)).dictionary_encode()
    texts = pa.array([_host_text(host) for host in raw.dictionary.to_pylist()], pa.string())
    return texts.take(raw.indices)


def _host_text(host: bytes) -> str:
    return f"{ipaddress.ip_address(host[:-4])}:{int.from_bytes(host[-4:], 'big', signed=True)}"


def _msg_id(source: _Source) -> pa.Array:
    """``MessageDecoder.createMessageId``: store host and physical offset in upper-case hexadecimal."""
    records = source.records
    v6 = (records.sys_flag & STOREHOSTADDRESS_V6_FLAG) != 0
    offsets = records.field("physical_offset").view(np.uint8).reshape(-1, 8)
    parts, order = [], []
    for chosen, length in ((~v6, HOST_V4_LENGTH), (v6, HOST_V6_LENGTH)):
        hosts = gather(records.data, f"V{length}", records.store_host_at[chosen]).view(np.uint8).reshape(-1, length)
        parts.append(_hex_strings(np.concatenate((hosts, offsets[chosen]), axis=1)))
        order.append(chosen.nonzero()[0])
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(order))))


def _hex_strings(rows: NDArray[np.uint8]) -> pa.Array:
    """Each row of bytes as one hexadecimal string."""
    count, width = rows.shape[0], rows.shape[1] * 2
    digits = np.stack((_HEX[rows >> 4], _HEX[rows & 15]), axis=2).reshape(-1)
    offsets = np.arange(0, count * width + 1, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digits))]
    return pa.Array.from_buffers(pa.string(), count, buffers)


_MADE: Final[dict[str, Callable[[_Source], pa.Array]]] = {
    "topic": _topic,
    "born_host": _born_host,
    "store_host": _store_host,
    "msg_id": _msg_id,
    "uniq_key": lambda source: property_values(source.properties, PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
    "keys": lambda source: property_values(source.properties, PROPERTY_KEYS),
    "tags": lambda source: property_values(source.properties, PROPERTY_TAGS),
    "body": _body,
    "properties": lambda source: properties_map(source.properties),
}
