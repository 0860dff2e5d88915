"""Bytes of another store's CommitLog, before they are appended unchanged (CommitLog.appendData)."""

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
)
from rocketbroker.codec.storefile.commit_log_layout import fits
from rocketbroker.codec.storefile.record_search import store_timestamp
from rocketbroker.common.errors import StoreError

_LONG: Final = Struct(">q")


class RawRecords(NamedTuple):
    """Whole records of one file: their size in bytes, and the earliest of their store times in ms."""

    size: int
    earliest_ms: int | None


def whole_records(data: ReadableBuffer, begin: int, offset: int, free: int) -> RawRecords:
    """Find the whole records from ``begin`` on that belong into one file, the BLANK that closes it included.

    A record that is incomplete in ``data`` is left for the next call.

    Args:
        data: bytes of a CommitLog.
        begin: position of the first record in ``data``.
        offset: CommitLog offset of that record.
        free: bytes of its file from there on.

    Raises:
        StoreError: The bytes are not those of a CommitLog at this offset.
    """
    at, earliest_ms = begin, None
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
        if not is_record(size, magic) or place != offset + at - begin or not fits(size, left):
            raise StoreError(
                f"the bytes for {offset + at - begin} of the CommitLog do not begin with a record of that offset: "
                f"size {size}, magic {magic}, offset {place}, and its file has {left} bytes left"
            )
        if at + size > len(data):
            break
        stored = store_timestamp(memoryview(data)[at : at + size])
        earliest_ms = stored if earliest_ms is None else min(earliest_ms, stored)
        at += size
    return RawRecords(at - begin, earliest_ms)


def is_record(size: int, magic: int) -> bool:
    """Return true if the first two fields are those of a record, and not of a BLANK, zeros, or something foreign."""
    return size > BODY_POSITION and magic in {MESSAGE_MAGIC_CODE_V1, MESSAGE_MAGIC_CODE_V2}
