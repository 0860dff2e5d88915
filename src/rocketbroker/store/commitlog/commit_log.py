"""All messages of the broker in the order of arrival (org.apache.rocketmq.store.CommitLog).

A record that does not fit into the rest of a file is preceded by a BLANK, and begins the next file. Only the event
loop's thread writes records; the flush thread reads ``wrote`` positions and syncs.
"""

import os
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, Protocol
from zlib import crc32

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_decoder import (
    BLANK_LENGTH,
    BLANK_MAGIC_CODE,
    BODY_POSITION,
    MESSAGE_MAGIC_CODE_V2,
    PHYSICAL_OFFSET_POSITION,
    PROPERTIES_LENGTH,
    RECORD_HEADS,
    decode_record,
    encode_blank,
    peek,
)
from rocketbroker.codec.storefile.log_walk import Stretch
from rocketbroker.codec.storefile.record_search import body_range, fits
from rocketbroker.common.errors import CorruptRecordError, MessageIllegalError, StoreError
from rocketbroker.store.commitlog.commit_log_walker import is_record, lengths_agree, whole_records
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner
from rocketbroker.store.logfile.allocate_mapped_file_service import AllocateMappedFileService
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface

# Blocks are allocated 64 MiB at a time; pages are made 4 MiB at a time and 8 MiB ahead of the writer.
ALLOCATE_STEP = 64 * 1024 * 1024
_POPULATE_STEP = 4 * 1024 * 1024
_POPULATE_AHEAD = 8 * 1024 * 1024

# A frame within the default limit carries no longer record, whatever the limit was when the record was stored.
_MAX_RECORD = 16 * 1024 * 1024

# queueId, flag, queueOffset.
_QUEUE_ID_POSITION = 12
_QUEUE_PLACE = Struct(">i4xq")

_HOST_BITS = 3
_length_pack = PROPERTIES_LENGTH.pack


class RawAppend(NamedTuple):
    """CommitLog offset after a raw append, and the earliest store time in ms of its records, ``None`` without one.

    ``stretches`` are records among them, in the memory of the appended bytes.
    """

    end: int
    earliest_ms: int | None
    stretches: Sequence[Stretch]


class LongRecord(NamedTuple):
    """Place of a long record in its queue, and its bytes."""

    topic: str
    queue_id: int
    queue_offset: int
    size: int


class EncodedRun(Protocol):
    """Records of messages that came together; ``sizes`` has at least that of the longest."""

    @property
    def sizes(self) -> Sequence[int]: ...

    @property
    def total(self) -> int: ...

    def encode(
        self, offset: int, queue_offsets: Sequence[int], store_timestamp: int, store_host: bytes
    ) -> tuple[ReadableBuffer, Sequence[int]]:
        """Return the records, the first of them at ``offset``, and the offset of each."""


class CommitLog:
    """The log: appends records and returns slices of its content.

    Args:
        store_host: the broker's address in the form of records.
        longest_record: records longer than both this and 16 MiB are not read by offset, because they may be forged.
            Appended records raise it, since maxMessageSize may grow. It may have been lowered: ``record`` takes the
            size that a queue entry names.
    """

    __slots__ = ("_file", "_limit", "_populated", "allocate_service", "longest_record", "queue", "store_host")

    def __init__(
        self,
        queue: MappedFileQueue,
        allocate_service: AllocateMappedFileService,
        store_host: bytes,
        longest_record: int = _MAX_RECORD,
    ) -> None:
        self.queue = queue
        self.longest_record = max(longest_record, _MAX_RECORD)
        self.store_host = store_host
        self.allocate_service = allocate_service
        self._file: MappedFile | None = None
        # Positions in the file being written: the end of the room that needs no check, and the end of the populated
        # pages.
        self._limit = 0
        self._populated = 0

    @property
    def min_offset(self) -> int:
        """Offset of the first record in the log."""
        return self.queue.min_offset

    @property
    def max_offset(self) -> int:
        """Offset after the last record."""
        return self.queue.max_offset

    def append(
        self, message: MessageExtBrokerInner, queue: ConsumeQueueInterface, queue_offset: int, store_timestamp: int
    ) -> tuple[int, int]:
        """Write one record and return its offset and size. The caller has checked the lengths.

        Raises:
            StoreFullError: The disk has no room for it; nothing was written.
            MessageIllegalError: It is longer than a file.
            StoreBusyError: The disk has not allocated blocks in time.
            StoreError: A file could not be created.
        """
        body = message.body
        properties = message.properties
        block = queue.topic_block
        sys_flag = message.sys_flag
        head = RECORD_HEADS[sys_flag >> 4 & _HOST_BITS]
        size = head.size + len(body) + len(block) + 2 + len(properties)
        file = self._file
        if file is None or file.wrote + size + BLANK_LENGTH > self._limit:
            file = self._room(size, (size,))
        position = file.wrote
        offset = file.file_from_offset + position
        file.write(
            position,
            position + size,
            b"".join(
                (
                    head.pack(
                        size,
                        queue.magic,
                        crc32(body) & 0x7FFFFFFF,
                        message.queue_id,
                        message.flag,
                        queue_offset,
                        offset,
                        sys_flag,
                        message.born_timestamp,
                        message.born_host,
                        store_timestamp,
                        self.store_host,
                        message.reconsume_times,
                        message.prepared_transaction_offset,
                        len(body),
                    ),
                    body,
                    block,
                    _length_pack(len(properties)),
                    properties,
                )
            ),
        )
        return offset, size

    def append_run(self, run: EncodedRun, queue_offsets: Sequence[int], store_timestamp: int) -> Sequence[int]:
        """Write the records of a run, back to back in one file, and return the offset of each.

        Raises:
            StoreError: as by ``reserve``; nothing was written.
        """
        file = self._room(run.total, run.sizes)
        position = file.wrote
        records, offsets = run.encode(file.file_from_offset + position, queue_offsets, store_timestamp, self.store_host)
        file.write(position, position + run.total, records)
        return offsets

    def append_encoded(self, records: ReadableBuffer, offset: int) -> None:
        """Write records that were encoded for ``offset``, which ``reserve`` returned.

        Raises:
            StoreFullError: The disk has no room for them; nothing was written.
        """
        file = self._room(len(records))
        position = offset - file.file_from_offset
        file.write(position, position + len(records), records)

    def append_raw(self, offset: int, data: ReadableBuffer) -> RawAppend:
        """Append unchanged bytes of another store's log, which begin at the end of this one.

        Only whole records that belong into one file are appended. A BLANK with the rest of its file counts as one.

        Raises:
            StoreFullError: The disk has no room for them; nothing was written.
            StoreBusyError: The disk has not allocated blocks in time; nothing was written.
            StoreError: They do not continue this log; nothing was written.
        """
        if offset != self.max_offset:
            raise StoreError(f"bytes for {offset} of the CommitLog do not continue it: it ends at {self.max_offset}")
        records = whole_records(data, 0, offset, self.queue.file_size - offset % self.queue.file_size)
        if records.size:
            self._append_to_file(offset, data[: records.size])
        return RawAppend(offset + records.size, records.earliest_ms, records.stretches)

    def _append_to_file(self, offset: int, records: ReadableBuffer) -> None:
        file = self._file
        if file is None or file.wrote == file.file_size:
            file = self._roll(file)
        position = offset - file.file_from_offset
        end = position + len(records)
        if end > self._limit:
            self._grow(file, end)
        file.write(position, end, records)

    def reserve(self, size: int, sizes: Sequence[int]) -> int:
        """Return the offset for records of ``sizes`` bytes, ``size`` in all, which will lie in one file.

        Raises:
            StoreFullError: The disk has no room for them.
            MessageIllegalError: They are longer than a file.
            StoreBusyError: The disk has not allocated blocks in time.
            StoreError: A file could not be created.
        """
        file = self._room(size, sizes)
        return file.file_from_offset + file.wrote

    def _room(self, size: int, sizes: Sequence[int] = ()) -> MappedFile:
        """Return the file with allocated room for ``size`` bytes at its ``wrote`` position.

        Args:
            size: bytes of all records.
            sizes: bytes of each, for records that no call has had yet.
        """
        file = self._file
        if file is None or not fits(size, file.file_size - file.wrote):
            if not fits(size, self.queue.file_size):
                raise MessageIllegalError(
                    f"{size} bytes and the BLANK after them do not fit into one file of the CommitLog, "
                    f"which has {self.queue.file_size} bytes (mappedFileSizeCommitLog)"
                )
            file = self._roll(file)
        end = min(file.wrote + size + BLANK_LENGTH, file.file_size)
        if end > self._limit:
            self._grow(file, end)
        if size > self.longest_record:
            # Here and not for each record: one of that length never fits into the room that needs no check.
            self.longest_record = max(self.longest_record, max(sizes, default=0))
        return file

    def _roll(self, file: MappedFile | None) -> MappedFile:
        """Close the last file by a BLANK and continue in the next one."""
        queue = self.queue
        if file is None and queue.files and queue.files[-1].wrote < queue.file_size:
            following = queue.files[-1]
        else:
            following = self.allocate_service.take(queue.path_of(queue.max_file_end), queue.file_size, queue.step)
            # A raw append may have closed it.
            if file is not None and file.wrote < file.file_size:
                # Not ``write``: the flush thread must never find ``wrote`` after the BLANK and before the file's end.
                with file.writing(file.wrote, file.wrote + BLANK_LENGTH) as blank:
                    blank[:] = encode_blank(file.file_size - file.wrote)
                file.wrote = file.file_size
            queue.append(following)
        self._file = following
        self._limit = self._populated = following.wrote
        self.allocate_service.prepare(queue.path_of(queue.max_file_end), queue.file_size, queue.step)
        return following

    def _grow(self, file: MappedFile, end: int) -> None:
        """Ensure that blocks are allocated, and start to make more blocks and pages ahead of the writer."""
        self.allocate_service.ensure_allocated(file, end)
        wanted = min(end + _POPULATE_AHEAD, file.file_size)
        if wanted > self._populated:
            self.allocate_service.grow(file, max(self._populated, end), wanted)
            self._populated = wanted
        self._limit = min(file.allocated, max(end, end - end % _POPULATE_STEP + _POPULATE_STEP))

    def begins_at(self, offset: int) -> bool:
        """Return true if a record, or the BLANK of a file, begins at an offset."""
        head = self.bytes_at(offset, BLANK_LENGTH)
        if head is None:
            return False
        size, magic = peek(head)
        if magic == BLANK_MAGIC_CODE:
            return (offset + size) % self.queue.file_size == 0
        place = self.bytes_at(offset + PHYSICAL_OFFSET_POSITION, 8)
        return is_record(size, magic) and place is not None and int.from_bytes(place, "big") == offset

    def begin_at(self, offset: int) -> None:
        """Make a log without records begin at an offset (blocks; on any thread, while nothing is appended).

        Its only file gets another name: a crash leaves one name or the other, and no gap.

        Raises:
            StoreError: The log has records, or no file after its end can begin there.
            OSError: The disk failed; the call may be made again.
        """
        queue = self.queue
        if queue.min_offset != queue.max_offset or offset % queue.file_size or offset < queue.max_offset:
            raise StoreError(
                f"the CommitLog has the offsets {queue.min_offset} to {queue.max_offset} and cannot begin at {offset}: "
                f"only an empty one can, at a multiple of {queue.file_size} after its end (mappedFileSizeCommitLog)"
            )
        self._forget_prepared()
        queue.files[0].rename(queue.path_of(offset))

    def truncate(self, offset: int) -> None:
        """Truncate the log at a record's offset (blocks; on any thread, while nothing is appended).

        Slices that were handed out keep their bytes: later files lose only their names, and the file of ``offset`` is
        replaced by a shorter copy. Files are removed from the last one backwards, so that a crash leaves a log without
        a hole.

        Raises:
            StoreError: The disk has no room for the copy.
            OSError: The disk failed. The log ends at or after ``offset``, and must be truncated again before an append.
        """
        queue = self.queue
        self._forget_prepared()
        queue.remove_from(offset)
        last = queue.files[-1]
        end = offset - last.file_from_offset
        if end < last.wrote:
            # The name belongs to the copy already, whatever happens next.
            queue.replace_last(last.copy_until(end))
        queue.files[-1].sync_names()

    def _forget_prepared(self) -> None:
        self.allocate_service.discard()
        self._file = None
        self._limit = self._populated = 0

    def slice(self, offset: int, size: int) -> memoryview | None:
        """Return the bytes at an offset as a slice of the mapped file; ``None`` if the log lacks some of them."""
        file = self._holding(offset, size)
        if file is None:
            return None
        position = offset - file.file_from_offset
        return file.buffer[position : position + size]

    def slices(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return the bytes of several ranges, without those that were deleted meanwhile."""
        found: list[memoryview] = []
        begin = end = 0
        for offset, size in ranges:
            # Most ranges are in the file of the one before.
            if not begin <= offset <= end - size:
                file = self._holding(offset, size)
                if file is None:
                    continue
                begin, buffer = file.file_from_offset, file.buffer
                end = begin + file.wrote
            position = offset - begin
            found.append(buffer[position : position + size])
        return found

    def warm_up(self) -> None:
        """Prepare the file that is written next, its blocks and its successor."""
        self._room(BLANK_LENGTH)

    def bytes_at(self, offset: int, size: int) -> bytes | None:
        """Read the bytes at an offset; unlike with ``slice``, waiting for the disk delays no other thread."""
        file = self._holding(offset, size)
        return None if file is None else os.pread(file.fd, size, offset - file.file_from_offset)

    def _holding(self, offset: int, size: int) -> MappedFile | None:
        """Return the file that holds all of these bytes, if they are written."""
        file = self.queue.find(offset)
        return None if file is None or offset - file.file_from_offset + size > file.wrote else file

    def may_be_record(self, offset: int, size: int) -> bool:
        """Return true if a record may have that size: maxMessageSize may have been larger when it was stored."""
        if size <= self.longest_record:
            return True
        head = self.bytes_at(offset, BODY_POSITION)
        return head is not None and is_record(*peek(head)) and peek(head)[0] == size

    def long_record(self, offset: int) -> LongRecord | None:
        """Return the place of what looks like a record longer than ``longest_record``; ``None`` if none begins there.

        Its body is not read: the offset may come from a client, and what is there from a body. Once its queue has been
        found to lead to it, ``record`` reads it.
        """
        head = self.bytes_at(offset, RECORD_HEADS[_HOST_BITS].size)
        if head is None:
            return None
        size, magic = peek(head)
        if not is_record(size, magic) or size <= self.longest_record:
            return None
        body_end = body_range(head)[1]
        tail = self.bytes_at(offset + body_end, size - body_end) if lengths_agree(head) else None
        if tail is None:
            return None
        width = 2 if magic == MESSAGE_MAGIC_CODE_V2 else 1
        topic = tail[width : width + int.from_bytes(tail[:width], "big")]
        queue_id, queue_offset = _QUEUE_PLACE.unpack_from(head, _QUEUE_ID_POSITION)
        return LongRecord(topic.decode("utf-8", "replace"), queue_id, queue_offset, size)

    def record(self, offset: int, size_in_queue: int = 0) -> bytes | None:
        """Return the whole record at an offset, or ``None`` if none begins there (blocks).

        ``size_in_queue`` is the size in the entry of a queue, if one leads to it: then it may be longer than
        ``longest_record``.
        """
        head = self.bytes_at(offset, BODY_POSITION)
        if head is None:
            return None
        size, magic = peek(head)
        # The offset comes from a client: anything may be there, even a record forged in a body.
        if (
            not is_record(size, magic)
            or size > max(self.longest_record, size_in_queue)
            or int.from_bytes(head[28:36], "big") != offset
        ):
            return None
        record = self.bytes_at(offset, size)
        if record is None:
            return None
        try:
            decode_record(record, check_crc=True, read_body=False)
        except CorruptRecordError:
            return None
        return record
