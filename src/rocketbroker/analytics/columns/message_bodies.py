"""Checksums and decompression of message bodies, on request."""

from collections.abc import Iterator
from typing import Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from rocketbroker.analytics.columns.arrow_slices import binary_slices
from rocketbroker.analytics.columns.decode_report import BODY_UNREADABLE, DecodeReport, SkippedRange
from rocketbroker.analytics.files.commit_log_files import LogFile
from rocketbroker.codec.message.compression import decompress
from rocketbroker.codec.message.message_const import COMPRESSED_FLAG
from rocketbroker.codec.storefile.audit_rules import AuditRule
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
            yield _part(records, first, number), pa.array(bodies, pa.binary())
            first, size, bodies = number, 0, []
        bodies.append(body)
        size += len(body or b"")
    yield _part(records, first, len(records)), pa.array(bodies, pa.binary())


def _part(records: Records, first: int, end: int) -> Records:
    return Records(records.base, records.data, records.starts[first:end])


def _range(records: Records, number: int, file: LogFile, reason: str) -> SkippedRange:
    position = int(records.field("physical_offset")[number]) - file.base
    return SkippedRange(file.root.broker, file.path, position, int(records.total_size[number]), reason)
