"""Arrow columns of the records of a window, each built only on request; checksums and decompression of bodies."""

import ipaddress
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketbroker.analytics.columns.arrow_columns import (
    as_text,
    binary_slices,
    number_array,
    properties_map,
    properties_text,
    text_array,
)
from rocketbroker.analytics.columns.decode_report import BODY_UNREADABLE, DecodeReport, SkippedRange
from rocketbroker.analytics.columns.message_schema import (
    DECOMPRESSED_BODY,
    FIRST_MS,
    LAST_MS,
    MESSAGE_SCHEMA,
    STORED_PROPERTIES,
)
from rocketbroker.analytics.files.commit_log_files import LogFile
from rocketbroker.codec.message.columns import Positions, gather
from rocketbroker.codec.message.compression import decompress
from rocketbroker.codec.message.message_const import (
    BORNHOST_V6_FLAG,
    COMPRESSED_FLAG,
    HOST_V4_LENGTH,
    HOST_V6_LENGTH,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    STOREHOSTADDRESS_V6_FLAG,
)
from rocketbroker.codec.message.message_decoder import BORN_HOST_POSITION
from rocketbroker.codec.message.property_slices import Slices, property_slices
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.dtypes import RECORD_HEAD
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.common.errors import CodecError

#: Decompressed bytes after which a batch ends; a single body may be larger (``compression``).
MAX_INFLATED: Final = 64 << 20


def check_bodies(records: Records, file: LogFile, report: DecodeReport) -> None:
    """Add each of ``records`` whose body does not match its CRC-32 to ``report``."""
    # Copying all bodies at once is faster than slicing them one by one.
    bodies = binary_slices(records.data, records.body_at, records.body_length).to_pylist()
    found = np.fromiter(map(crc32, bodies), np.int64, len(bodies)) & 0x7FFFFFFF
    for number in np.flatnonzero(found != records.field("body_crc")).tolist():
        report.add_wrong_body(_range(records, number, file, AuditRule.RECORD_CRC.value))


def inflated(records: Records, file: LogFile, report: DecodeReport) -> Iterator[tuple[Records, pa.Array]]:
    """Yield ``records`` in parts with their decompressed bodies; null for a body that cannot be decompressed."""
    first, size, bodies = 0, 0, list[bytes | None]()
    flags = records.sys_flag.tolist()
    for number, (at, length) in enumerate(zip(records.body_at.tolist(), records.body_length.tolist(), strict=True)):
        body: bytes | None = records.data[at : at + length].tobytes()
        if body and flags[number] & COMPRESSED_FLAG:
            try:
                body = decompress(body, flags[number])
            except CodecError:
                body = None
                report.add_wrong_body(_range(records, number, file, BODY_UNREADABLE))
        if bodies and size + len(body or b"") > MAX_INFLATED:
            yield _records_between(records, first, number), pa.array(bodies, pa.binary())
            first, size, bodies = number, 0, []
        bodies.append(body)
        size += len(body or b"")
    yield _records_between(records, first, len(records)), pa.array(bodies, pa.binary())


def _records_between(records: Records, first: int, end: int) -> Records:
    return Records(records.base, records.data, records.starts[first:end])


def _range(records: Records, number: int, file: LogFile, reason: str) -> SkippedRange:
    position = int(records.field("physical_offset")[number]) - file.base
    return SkippedRange(file.root.broker, file.path, position, int(records.total_size[number]), reason)


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
