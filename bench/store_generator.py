"""Generator of stores as a broker writes them, by numpy: a million messages a second instead of twenty thousand.

All messages have one length, so that the offset of each follows from its number. The bytes are those that
``MessageStore`` writes for the same messages.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_decoder import (
    BLANK_LENGTH,
    BODY_POSITION,
    body_crc,
    encode_blank,
    encode_record,
)
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import find_properties
from rocketbroker.codec.message.tags_code import extend_hash, java_hash, tags_code_bytes
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint
from rocketbroker.codec.storefile.consume_queue_layout import CQ_STORE_UNIT_SIZE
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY, RECORD_HEAD
from rocketbroker.codec.storefile.index_file_layout import build_key, build_tag_key, key_hash_of
from rocketbroker.codec.storefile.index_file_layout import file_size as index_file_size
from rocketbroker.codec.storefile.store_file import offset_to_file_name
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.store.index.index_file import IndexFile
from rocketbroker.store.recovery import queue_recovery

NUMBER: Final = b"#########"
MOST_MESSAGES: Final = 10 ** len(NUMBER)
HOST: Final = host_bytes("127.0.0.1", 10911)
_GROUP_DIGITS: Final = 3
_GROUPS: Final = len(NUMBER) // _GROUP_DIGITS
_GROUP_VALUES: Final = 10**_GROUP_DIGITS

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]


def _text_of_groups() -> Bytes:
    texts = b"".join(b"%03d" % value for value in range(_GROUP_VALUES))
    return np.frombuffer(texts, np.uint8).reshape(_GROUP_VALUES, _GROUP_DIGITS)


_GROUP_TEXTS: Final = _text_of_groups()


def groups_of(numbers: Numbers) -> list[Numbers]:
    """Return the three-digit groups of each number, highest first: ``_GROUPS`` arrays of the same shape."""
    return [numbers // _GROUP_VALUES**power % _GROUP_VALUES for power in range(_GROUPS - 1, -1, -1)]


def with_number(text: bytes, number: int) -> bytes:
    """Return ``text`` with each ``NUMBER`` replaced by a number."""
    return text.replace(NUMBER, b"%09d" % number)


@dataclass(frozen=True)
class Messages:
    """Shape of generated messages, which go to the queues of all topics in turn.

    Attributes:
        topics: topic names, all of the same length.
        queues: queues of each topic.
        body: body of each message; ``NUMBER`` is replaced by its number.
        properties: encoded properties, with the same replacement.
        first_timestamp: store time of the first message, ms.
        per_ms: messages with the same store time.
    """

    topics: tuple[str, ...]
    queues: int
    body: bytes
    properties: bytes
    first_timestamp: int
    per_ms: int = 50

    def __post_init__(self) -> None:
        if len(set(map(len, self.topics))) != 1 or not "".join(self.topics).isascii():
            raise ValueError(f"topics {self.topics} are not ASCII names of one length")

    @property
    def streams(self) -> int:
        """The number of queues of all topics."""
        return len(self.topics) * self.queues

    def place(self, stream: int) -> tuple[str, int]:
        """Return topic and queue of message ``stream`` and of every ``streams``-th message after it."""
        return self.topics[stream % len(self.topics)], stream // len(self.topics) % self.queues

    def timestamp(self, number: int) -> int:
        """Return the store time of a message in ms."""
        return self.first_timestamp + number // self.per_ms


class RecordTemplate:
    """Generator of records and of the key hashes of their index entries.

    Attributes:
        size: size of each record in bytes.
        tags_code: tags code of each ConsumeQueue entry.
        keys: index entries of each message.
    """

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        pattern = self._pattern()
        self.size = len(pattern)
        self._digits = _positions(pattern)
        self._row = np.frombuffer(pattern, np.uint8)
        self._topic_at = BODY_POSITION + len(messages.body) + 1
        self._topics = np.frombuffer("".join(messages.topics).encode(), np.uint8).reshape(len(messages.topics), -1)
        self._crc_base, self._crc_tables = _tables(messages.body, body_crc, np.bitwise_xor)
        tags, unique_key, keys, _ = find_properties(messages.properties)
        self.tags_code = tags_code_bytes(tags)
        self._key_texts = ([unique_key] if unique_key else []) + [key for key in (keys or b"").split(b" ") if key]
        self._tags = tags
        self.keys = len(self._key_texts) + (1 if tags else 0)
        self._hash_tables = [_tables(text, _hash_of, np.subtract)[1] for text in self._key_texts]
        self._hash_bases = np.array(
            [[self._base_hash(topic, text) for topic in messages.topics] for text in self._key_texts]
        )

    def _pattern(self) -> bytes:
        messages = self._messages
        return encode_record(
            queue_id=0,
            flag=0,
            queue_offset=0,
            physical_offset=0,
            sys_flag=0,
            born_timestamp=0,
            born_host=HOST,
            store_timestamp=0,
            store_host=HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=messages.body,
            topic_bytes=messages.topics[0].encode(),
            properties_bytes=messages.properties,
        )

    @staticmethod
    def _base_hash(topic: str, text: bytes) -> int:
        return extend_hash(java_hash(build_key(topic, "")), with_number(text, 0)) & 0xFFFFFFFF

    def records(self, numbers: Numbers, offsets: Numbers) -> Bytes:
        """Return the records of messages, shape (n, ``size``).

        Args:
            numbers: message numbers, shape (n,).
            offsets: their CommitLog offsets, shape (n,).
        """
        messages = self._messages
        rows = np.empty((len(numbers), self.size), np.uint8)
        rows[:] = self._row
        groups = groups_of(numbers)
        for position in self._digits:
            for index, group in enumerate(groups):
                at = position + index * _GROUP_DIGITS
                rows[:, at : at + _GROUP_DIGITS] = _GROUP_TEXTS[group]
        topics = numbers % len(messages.topics)
        rows[:, self._topic_at : self._topic_at + self._topics.shape[1]] = self._topics[topics]
        head = rows[:, : RECORD_HEAD.itemsize].view(RECORD_HEAD)[:, 0]
        head["body_crc"] = _joined(self._crc_base, self._crc_tables, groups, np.bitwise_xor)
        head["queue_id"] = numbers // len(messages.topics) % messages.queues
        head["queue_offset"] = numbers // messages.streams
        head["physical_offset"] = offsets
        head["store_timestamp"] = head["born_timestamp"] = messages.first_timestamp + numbers // messages.per_ms
        return rows

    def key_hashes(self, numbers: Numbers) -> npt.NDArray[np.int32]:
        """Return the key hashes of the index entries of messages, in insertion order, shape (n, ``keys``)."""
        hashes = np.empty((len(numbers), self.keys), np.int32)
        topics = numbers % len(self._messages.topics)
        groups = groups_of(numbers)
        for column, tables in enumerate(self._hash_tables):
            base = self._hash_bases[column].astype(np.uint32)[topics]
            signed = _joined(base, tables, groups, np.add).view(np.int32)
            hashes[:, column] = np.maximum(np.abs(signed), 0)
        if self._tags:
            of_tags = [self._tag_hash(topic) for topic in self._messages.topics]
            hashes[:, -1] = np.array(of_tags, np.int32)[topics]
        return hashes

    def _tag_hash(self, topic: str) -> int:
        return key_hash_of(extend_hash(java_hash(build_tag_key(topic, "")), self._tags or b""))


def _hash_of(text: bytes) -> int:
    return extend_hash(0, text)


def _positions(text: bytes) -> list[int]:
    found, position = [], text.find(NUMBER)
    while position >= 0:
        found.append(position)
        position = text.find(NUMBER, position + len(NUMBER))
    return found


def _tables(text: bytes, function: Callable[[bytes], int], less: np.ufunc) -> tuple[Words, list[Words]]:
    """Return the result of a function for number 0, and a table of the difference that each digit group adds."""
    base = np.array([function(with_number(text, 0)) & 0xFFFFFFFF], np.uint32)
    tables = []
    for power in range(_GROUPS - 1, -1, -1):
        numbers = [value * _GROUP_VALUES**power for value in range(_GROUP_VALUES)]
        values = [function(with_number(text, number)) & 0xFFFFFFFF for number in numbers]
        tables.append(less(np.array(values, np.uint32), base))
    return base, tables


def _joined(base: Words, tables: Sequence[Words], groups: Sequence[Numbers], more: np.ufunc) -> Words:
    result = base
    for table, group in zip(tables, groups, strict=True):
        result = more(result, table[group])
    return result


class PagedFiles:
    """Writer of consecutive files of one size, from the first to the last.

    Args:
        folder: folder of the files; created if missing.
        file_size: size of each file in bytes; no file may exist yet.
    """

    def __init__(self, folder: Path, file_size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._file_size = file_size
        self._fd = -1
        self._start = -1

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes at an offset; never to a file before the current one."""
        while data:
            position = offset % self._file_size
            self._select(offset - position)
            written = os.pwrite(self._fd, data[: self._file_size - position], position)
            offset, data = offset + written, data[written:]

    def _select(self, start: int) -> None:
        if start == self._start:
            return
        self.close()
        path = self._folder / offset_to_file_name(start)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._start = start
        os.ftruncate(self._fd, self._file_size)

    def close(self) -> None:
        """Sync and close the current file."""
        if self._fd >= 0:
            os.fdatasync(self._fd)
            os.close(self._fd)
            self._fd = -1


class IndexWriter:
    """Writer of index files; it begins a new file when the last one is full.

    Args:
        config: settings with their folder and sizes.
    """

    def __init__(self, config: MessageStoreConfig) -> None:
        config.index_dir.mkdir(parents=True, exist_ok=True)
        self._config = config
        self._file: IndexFile | None = None
        self._last_name = 0

    def enter(self, hashes: npt.NDArray[np.int32], offsets: Numbers, timestamps: Numbers) -> None:
        """Add the keys of messages, oldest first.

        Args:
            hashes: key hashes, shape (n, keys of each).
            offsets: CommitLog offsets of the messages, shape (n,).
            timestamps: store times of the messages in ms, shape (n,).
        """
        keys = hashes.shape[1]
        all_hashes, all_offsets, all_times = hashes.ravel(), np.repeat(offsets, keys), np.repeat(timestamps, keys)
        done = 0
        while done < len(all_hashes):
            file = self._with_room(int(all_times[done]))
            end = done + min(file.room, len(all_hashes) - done)
            file.put_keys(all_hashes[done:end], all_offsets[done:end], all_times[done:end])
            done = end

    def _with_room(self, timestamp: int) -> IndexFile:
        if self._file is not None and self._file.room:
            return self._file
        self.close()
        text = time.strftime("%Y%m%d%H%M%S", time.localtime(timestamp // 1000)) + f"{timestamp % 1000:03d}"
        # Names must sort by creation, even if two files fill up within a millisecond.
        self._last_name = max(int(text), self._last_name + 1)
        config = self._config
        path = config.index_dir / str(self._last_name)
        self._file = IndexFile(path, config.max_hash_slot_num, config.max_index_num)
        return self._file

    def close(self) -> None:
        """Sync and close the current file."""
        if self._file is not None:
            self._file.sync()
            self._file.close()
            self._file = None


# Messages generated at once, and bytes of their records: columns stay in the CPU caches, and memory is bounded.
_CHUNK: Final = 1 << 16
_CHUNK_BYTES: Final = 32 << 20
# Recovery trusts a checkpoint time only up to this many ms before it.
CHECKPOINT_SAFETY_MS: Final = 3000


class StoreGenerator:
    """Generator of one store.

    Args:
        config: paths and sizes of log, queues and index files.
        messages: shape of the messages.
        count: number of messages.
    """

    def __init__(self, config: MessageStoreConfig, messages: Messages, count: int) -> None:
        if not 0 < count <= MOST_MESSAGES:
            raise ValueError(f"{count} messages cannot be numbered, 1 to {MOST_MESSAGES} can")
        self.config = config
        self.messages = messages
        self.count = count
        self.template = RecordTemplate(messages)
        self.per_file = (config.mapped_file_size_commit_log - BLANK_LENGTH) // self.template.size
        if not self.per_file:
            raise ValueError(f"records of {self.template.size} bytes do not fit into files of the CommitLog")

    @property
    def disk_bytes(self) -> int:
        """Approximate size of the store on disk."""
        config = self.config
        keys = self.count * self.template.keys
        index_files = -(-keys // (config.max_index_num - 1)) if config.message_index_enable else 0
        index = index_files * index_file_size(config.max_hash_slot_num, config.max_index_num)
        return self.count * (self.template.size + CQ_STORE_UNIT_SIZE) + index

    @property
    def last_timestamp(self) -> int:
        """Store time of the last message, ms."""
        return self.messages.timestamp(self.count - 1)

    def offset_of(self, number: int) -> int:
        """Return the CommitLog offset of a message."""
        return (
            number // self.per_file * self.config.mapped_file_size_commit_log
            + number % self.per_file * self.template.size
        )

    @property
    def end(self) -> int:
        """CommitLog offset after the last message."""
        return self.offset_of(self.count - 1) + self.template.size

    def _offsets(self, numbers: Numbers) -> Numbers:
        in_file = numbers % self.per_file * self.template.size
        return numbers // self.per_file * self.config.mapped_file_size_commit_log + in_file

    def write(self, progress: Callable[[int], None] = lambda done: None) -> None:
        """Write and sync log, queues, index and topics; call ``mark_clean`` or ``mark_crashed`` afterwards.

        Args:
            progress: callback with the number of messages written so far.
        """
        with ExitStack() as stack:
            log = PagedFiles(self.config.commit_log_dir, self.config.mapped_file_size_commit_log)
            stack.enter_context(closing(log))
            queues = [stack.enter_context(closing(self._queue_files(each))) for each in range(self.messages.streams)]
            index = stack.enter_context(closing(IndexWriter(self.config))) if self.config.message_index_enable else None
            for numbers in self._chunks():
                offsets = self._offsets(numbers)
                log.write(int(offsets[0]), self.template.records(numbers, offsets).data.cast("B"))
                self._close_file(log, int(numbers[-1]))
                self._write_queues(queues, numbers, offsets)
                if index is not None:
                    timestamps = self.messages.first_timestamp + numbers // self.messages.per_ms
                    index.enter(self.template.key_hashes(numbers), offsets, timestamps)
                progress(int(numbers[-1]) + 1)
        self.write_topics()

    def _chunks(self) -> Iterator[Numbers]:
        """Yield the numbers of all messages in chunks, each within one log file."""
        start = 0
        most = max(min(_CHUNK, _CHUNK_BYTES // self.template.size), 1)
        while start < self.count:
            end = min(start + most, (start // self.per_file + 1) * self.per_file, self.count)
            yield np.arange(start, end, dtype=np.int64)
            start = end

    def _close_file(self, log: PagedFiles, last: int) -> None:
        """Write the BLANK record at the end of a full file."""
        end = last + 1
        if end % self.per_file == 0 and end < self.count:
            at = self.offset_of(last) + self.template.size
            log.write(at, memoryview(encode_blank(self.offset_of(end) - at)))

    def _queue_files(self, stream: int) -> PagedFiles:
        topic, queue_id = self.messages.place(stream)
        folder = self.config.consume_queue_dir / topic / str(queue_id)
        return PagedFiles(folder, self.config.mapped_file_size_consume_queue)

    def _write_queues(self, queues: Sequence[PagedFiles], numbers: Numbers, offsets: Numbers) -> None:
        streams = len(queues)
        start = int(numbers[0])
        for stream, queue in enumerate(queues):
            first = (stream - start) % streams
            mine = offsets[first::streams]
            if len(mine):
                entries = np.empty(len(mine), CONSUME_QUEUE_ENTRY)
                entries["commit_log_offset"] = mine
                entries["size"] = self.template.size
                entries["tags_code"] = self.template.tags_code
                queue.write((start + first) // streams * CQ_STORE_UNIT_SIZE, memoryview(entries.tobytes()))

    def write_topics(self) -> None:
        """Write only ``config/topics.json``, so that a broker accepts messages for these topics."""
        path = Path(self.config.store_path_root_dir) / "config" / "topics.json"
        manager = TopicConfigManager(path, BrokerConfig(), SystemClock())
        for topic in self.messages.topics:
            manager.update(TopicConfig(topic, self.messages.queues, self.messages.queues))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(manager.encode())

    def mark_clean(self) -> None:
        """Leave the store as after a clean stop."""
        self._mark(StoreCheckpoint(*[self.last_timestamp] * 3))
        self.config.abort_path.unlink(missing_ok=True)

    def mark_crashed(self, known: float, *, index_known: bool) -> None:
        """Leave the store as after a kill.

        Args:
            known: share of the messages that are on disk according to the checkpoint, 0 to 1.
            index_known: True if the checkpoint covers the index too. A broker that has neither filled an index file
                nor stopped cleanly since its start has no such checkpoint.
        """
        timestamp = self.messages.timestamp(int(self.count * known)) + CHECKPOINT_SAFETY_MS
        self._mark(StoreCheckpoint(timestamp, timestamp, timestamp if index_known else 0))
        self.config.abort_path.write_bytes(str(os.getpid()).encode())
        # Recovery trusts the notes of a clean stop, whatever the checkpoint says.
        for path in self.config.config_dir.glob(f"{queue_recovery.QUEUE_ENDS_FILE}*"):
            path.unlink()

    def _mark(self, checkpoint: StoreCheckpoint) -> None:
        self.config.checkpoint_path.write_bytes(checkpoint.encode())
