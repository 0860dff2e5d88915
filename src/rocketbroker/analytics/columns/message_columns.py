"""Arrow columns of the records of a window, each built only on request."""

import ipaddress
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketbroker.analytics.columns.arrow_slices import as_text, binary_slices, number_array, text_array
from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.message_bodies import check_bodies, inflated
from rocketbroker.analytics.columns.message_schema import (
    DECOMPRESSED_BODY,
    FIRST_MS,
    LAST_MS,
    MESSAGE_SCHEMA,
    STORED_PROPERTIES,
)
from rocketbroker.analytics.columns.property_columns import properties_map, properties_text
from rocketbroker.analytics.files.commit_log_files import LogFile
from rocketbroker.codec.message.columns import Positions, gather
from rocketbroker.codec.message.message_const import (
    BORNHOST_V6_FLAG,
    HOST_V4_LENGTH,
    HOST_V6_LENGTH,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    STOREHOSTADDRESS_V6_FLAG,
)
from rocketbroker.codec.message.message_decoder import BORN_HOST_POSITION
from rocketbroker.codec.message.property_slices import Slices, property_slices
from rocketbroker.codec.storefile.dtypes import RECORD_HEAD
from rocketbroker.codec.storefile.record_columns import Records

_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def message_batches(
    records: Records, file: LogFile, schema: pa.Schema, report: DecodeReport, *, check_crc: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield ``records`` of ``file`` with the columns and types of ``schema``, several batches for large bodies.

    :func:`tables.table.check_table_schema` checks schemas. ``report`` records invalid bodies.
    """
    if check_crc:
        check_bodies(records, file, report)
    if DECOMPRESSED_BODY not in schema.names:
        yield _batch(_Source(records, file), schema)
        return
    for part, bodies in inflated(records, file, report):
        yield _batch(_Source(part, file, bodies), schema)


def _batch(source: "_Source", schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_column(source, field) for field in schema], schema=schema)


class _Source:
    """Records of one file, with decompressed bodies if a column needs them, and with properties as text on demand."""

    def __init__(self, records: Records, file: LogFile, bodies: pa.Array | None = None) -> None:
        self.records = records
        self.bodies = bodies
        self.broker = file.root.broker

    @cached_property
    def properties(self) -> pa.Array:
        return properties_text(self.records)

    @cached_property
    def named_properties(self) -> dict[str, Slices]:
        """Positions of the properties that have their own column."""
        records = self.records
        names = [name.encode() for name in _PROPERTIES.values()]
        slices = property_slices(records.data, records.properties_at, records.properties_length, *names)
        return dict(zip(_PROPERTIES, slices, strict=True))


def _column(source: _Source, field: pa.Field) -> pa.Array:
    if field.name.endswith("_timestamp"):
        return _timestamps(source.records, field)
    if field.name in _FIXED:
        return number_array(source.records.field(_FIXED[field.name]).astype(field.type.to_pandas_dtype(), copy=False))
    if field.name in _PROPERTIES:
        return _property(source, field.name)
    return _MADE[field.name](source)


#: Columns that are a field of ``codec.storefile.dtypes.RECORD_HEAD``, most by the same name.
_FIXED: Final = {
    "size": "total_size",
    **{name: name for name in MESSAGE_SCHEMA.names if name in (RECORD_HEAD.fields or ())},
}

#: Columns that are a property.
_PROPERTIES: Final = {
    "uniq_key": PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    "keys": PROPERTY_KEYS,
    "tags": PROPERTY_TAGS,
}


def _property(source: _Source, column: str) -> pa.Array:
    """Return the values of a property; null where it is missing or empty."""
    records, found = source.records, source.named_properties[column]
    missing = found.lengths == 0
    at = np.where(missing, records.properties_at, found.starts)
    return as_text(binary_slices(records.data, at, found.lengths, missing=missing))


def _timestamps(records: Records, field: pa.Field) -> pa.Array:
    """Return the milliseconds as stored for an int64 field; else a timestamp, null outside the years 1 to 9999."""
    millis = records.field(field.name)
    if pa.types.is_integer(field.type):
        return number_array(millis)
    if not len(millis) or (millis.min() >= FIRST_MS and millis.max() <= LAST_MS):
        return number_array(millis * 1000, field.type)
    outside = (millis < FIRST_MS) | (millis > LAST_MS)
    return number_array(np.where(outside, 0, millis) * 1000, field.type, outside)


def _broker(source: _Source) -> pa.Array:
    return text_array([source.broker]).take(number_array(np.zeros(len(source.records), np.int8)))


def _part(source: _Source, at: str, length: str) -> pa.Array:
    """Return the bytes of a part of each record, whose bounds are columns of ``Records``."""
    return binary_slices(source.records.data, getattr(source.records, at), getattr(source.records, length))


def _hosts(records: Records, at: Positions, v6_flag: int) -> pa.Array:
    """Return hosts as ``address:port``; each distinct host is formatted once, since few hosts send many messages."""
    lengths = np.where(records.sys_flag & v6_flag, HOST_V6_LENGTH, HOST_V4_LENGTH)
    raw = binary_slices(records.data, at, lengths).dictionary_encode()
    texts = text_array([_host_text(host) for host in raw.dictionary.to_pylist()])
    return texts.take(raw.indices)


def _host_text(host: bytes) -> str:
    return f"{ipaddress.ip_address(host[:-4])}:{int.from_bytes(host[-4:], 'big', signed=True)}"


def _msg_id(source: _Source) -> pa.Array:
    """Return ``MessageDecoder.createMessageId``: store host and physical offset in upper-case hexadecimal."""
    records = source.records
    v6 = (records.sys_flag & STOREHOSTADDRESS_V6_FLAG) != 0
    offsets = records.physical_offset.astype(">i8").view(np.uint8).reshape(-1, 8)
    parts, order = [], []
    for chosen, length in ((~v6, HOST_V4_LENGTH), (v6, HOST_V6_LENGTH)):
        hosts = gather(records.data, f"V{length}", records.store_host_at[chosen]).view(np.uint8).reshape(-1, length)
        parts.append(_hex_strings(np.concatenate((hosts, offsets[chosen]), axis=1)))
        order.append(chosen.nonzero()[0])
    return pa.concat_arrays(parts).take(number_array(np.argsort(np.concatenate(order))))


def _hex_strings(rows: NDArray[np.uint8]) -> pa.Array:
    """Return each row of bytes as one hexadecimal string."""
    count, width = rows.shape[0], rows.shape[1] * 2
    digits = np.stack((_HEX[rows >> 4], _HEX[rows & 15]), axis=2).reshape(-1)
    offsets = np.arange(0, count * width + 1, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digits))]
    return pa.Array.from_buffers(pa.string(), count, buffers)


_MADE: Final[dict[str, Callable[[_Source], pa.Array]]] = {
    "broker": _broker,
    "topic": lambda source: as_text(_part(source, "topic_at", "topic_length")),
    "born_host": lambda source: _hosts(source.records, source.records.starts + BORN_HOST_POSITION, BORNHOST_V6_FLAG),
    "store_host": lambda source: _hosts(source.records, source.records.store_host_at, STOREHOSTADDRESS_V6_FLAG),
    "msg_id": _msg_id,
    "body": lambda source: _part(source, "body_at", "body_length"),
    STORED_PROPERTIES: lambda source: _part(source, "properties_at", "properties_length"),
    DECOMPRESSED_BODY: lambda source: source.bodies,
    "properties": lambda source: properties_map(source.properties),
}
