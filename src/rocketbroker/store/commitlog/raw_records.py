"""Bytes of another store's CommitLog, before they are appended unchanged (CommitLog.appendData)."""

from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.message.message_decoder import peek
from rocketbroker.codec.message.message_encoder import (
    BLANK_LENGTH,
    BLANK_MAGIC_CODE,
    BODY_POSITION,
    MESSAGE_MAGIC_CODE_V1,
    MESSAGE_MAGIC_CODE_V2,
    PHYSICAL_OFFSET_POSITION,
    RECORD_HEADS,
)
from rocketbroker.codec.storefile.body_check import body_range, wrong_body
from rocketbroker.codec.storefile.commit_log_layout import fits
from rocketbroker.codec.storefile.log_walk import FileWalk, Stretch
from rocketbroker.codec.storefile.log_window import LogExtent, LogWindow
from rocketbroker.codec.storefile.record_search import store_timestamp
from rocketbroker.common.errors import StoreError

_LONG: Final = Struct(">q")
#: Longest record without its body.
RECORD_ROOM: Final = 128 * 1024
# Bytes from which on records are found by columns.
_MANY_BYTES: Final = 64 << 10


class RawRecords(NamedTuple):
    """Whole records of one file: their size in bytes, and the earliest of their store times in ms.

    ``stretches`` are those that were found by columns; they use the memory of the bytes.
    """

    size: int
    earliest_ms: int | None
    stretches: Sequence[Stretch] = ()


def whole_records(data: ReadableBuffer, begin: int, offset: int, free: int) -> RawRecords:
    """Find the whole records from ``begin`` on that belong into one file, the BLANK that closes it included.

    A record that is incomplete in ``data`` is left for the next call.

    Args:
        data: bytes of a CommitLog.
        begin: position of the first record in ``data``.
        offset: CommitLog offset of that record.
        free: bytes of its file from there on.

    Raises:
        StoreError: The first bytes are not those of a sound record at this offset.
    """
    many = RawRecords(0, None)
    if len(data) - begin >= _MANY_BYTES:
        many = _many_records(memoryview(data)[begin:], offset, free)
    at, earliest_ms = begin + many.size, many.earliest_ms
    while at - begin < free and at + BLANK_LENGTH <= len(data):
        size, magic = peek(data, at)
        left = free - (at - begin)
        if magic == BLANK_MAGIC_CODE and size == left:
            if at + size <= len(data):
                at += size
            break
        if at + BODY_POSITION > len(data):
            break
        (place,) = _LONG.unpack_from(data, at + PHYSICAL_OFFSET_POSITION)
        why = ""
        if not is_record(size, magic) or place != offset + at - begin or not fits(size, left):
            why = (
                f"they do not begin with a record of that offset: size {size}, magic {magic}, offset {place}, and its "
                f"file has {left} bytes left"
            )
        elif at + size > len(data):
            break
        record = memoryview(data)[at : at + size]
        if why := why or _damage(record):
            if at > begin:
                break  # the next call reports it
            raise StoreError(f"the bytes for {offset} of the CommitLog are wrong: {why}")
        stored = store_timestamp(record)
        earliest_ms = stored if earliest_ms is None else min(earliest_ms, stored)
        at += size
    return RawRecords(at - begin, earliest_ms, many.stretches)


def _many_records(data: memoryview, offset: int, free: int) -> RawRecords:
    """Find sound records by columns, up to the first one that is not whole or not sound."""
    extent = LogExtent(offset, free, min(len(data), free))
    walk = FileWalk(LogWindow.on(data, extent), 0, extent.data_end, check_bodies=True)
    stretches: list[Stretch] = []
    # The walk raises an error at a record that is not whole, after all before it.
    with suppress(StoreError):
        stretches.extend(walk)
    if not stretches:
        return RawRecords(0, None)
    earliest_ms = min(int(stretch.records.field("store_timestamp").min()) for stretch in stretches)
    return RawRecords(stretches[-1].end_offset - offset, earliest_ms, stretches)


def _damage(record: memoryview) -> str:
    """Return the fault of a record whose length is known, empty if it has none."""
    end = body_range(record)[1]
    width = 2 if record[7] == MESSAGE_MAGIC_CODE_V2 & 0xFF else 1
    tail = record[end:]
    topic_end = width + int.from_bytes(tail[:width], "big")
    if topic_end + 2 + int.from_bytes(tail[topic_end : topic_end + 2], "big") != len(tail):
        return "the lengths in the record do not add up"
    return wrong_body(record)


def lengths_agree(head: ReadableBuffer) -> bool:
    """Return true if totalSize and bodyLength in the head of a record leave its topic and properties a likely room.

    ``head`` has the longest head's length at least.
    """
    size, body_end = peek(head)[0], body_range(bytes(head[: RECORD_HEADS[3].size]))[1]
    return 0 < size - body_end <= RECORD_ROOM


def is_record(size: int, magic: int) -> bool:
    """Return true if the first two fields are those of a record, and not of a BLANK, zeros, or something foreign."""
    return size > BODY_POSITION and magic in {MESSAGE_MAGIC_CODE_V1, MESSAGE_MAGIC_CODE_V2}
