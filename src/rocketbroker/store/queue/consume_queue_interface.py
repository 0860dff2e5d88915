"""Common part of all consume queues (org.apache.rocketmq.store.queue.ConsumeQueueInterface).

``next_offset`` is the queue offset of the next message; readers find the end at ``max_offset``. Messages between the
two are in the CommitLog but not dispatched yet.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from rocketbroker.codec.message.message_decoder import magic_code, topic_block
from rocketbroker.codec.message.raw_records import QueuedRecord, RecordCheck
from rocketbroker.codec.message.tags_code import extend_hash, java_hash
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.storefile.consume_queue_layout import QueueEntry
from rocketbroker.codec.storefile.index_file_layout import build_key, build_tag_key, key_hash_of
from rocketbroker.common.file_system import FileSystem
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue

# Blocks of a queue are allocated 3,276 messages at a time.
_ALLOCATE_STEP = 65536
_REMEMBERED_TAGS = 1024


class ConsumeQueueInterface(ABC):
    """The index of one queue, and the fields that all records of its topic share."""

    __slots__ = (
        "dirty",
        "key_prefix_hash",
        "magic",
        "max_offset",
        "min_offset",
        "next_offset",
        "queue",
        "queue_id",
        "record_check",
        "room_end",
        "schedule",
        "tag_hashes",
        "tags_codes",
        "topic",
        "topic_block",
        "trusted_from",
    )

    #: True if a record may take several queue offsets.
    holds_batches: ClassVar[bool] = False

    def __init__(self, topic: str, queue_id: int, directory: Path, file_size: int, file_system: FileSystem) -> None:
        self.topic = topic
        self.queue_id = queue_id
        step = min(_ALLOCATE_STEP, file_size)
        self.queue = MappedFileQueue(directory, file_size, step, file_system, keeps_open=False)
        # Fields of every record of the topic, and the begin of its index keys.
        encoded = topic.encode()
        self.topic_block = topic_block(encoded)
        self.magic = magic_code(len(encoded))
        self.record_check = RecordCheck(queue_id, self.magic, self.topic_block)
        self.schedule = topic == RMQ_SYS_SCHEDULE_TOPIC
        self.key_prefix_hash = java_hash(build_key(topic, ""))
        self.tag_hashes: dict[bytes, int] = {}
        self.min_offset = 0
        self.max_offset = 0
        self.next_offset = 0
        # A message that gets this queue offset, or a later one, needs ``make_room`` first.
        self.room_end = 0
        # Entries before this queue offset were stored by an earlier process, or before a failed sync. They are checked
        # before they are returned. Changed on the event loop.
        self.trusted_from = 0
        # Tags codes seen in checked records.
        self.tags_codes: set[int] = set()
        self.dirty = False

    def tag_hash(self, tags: bytes) -> int:
        """Return the key hash of an index entry for tags of this topic; ``tag_hashes`` has those seen before."""
        if (known := self.tag_hashes.get(tags)) is not None:
            return known
        found = key_hash_of(extend_hash(java_hash(build_tag_key(self.topic, "")), tags))
        if len(self.tag_hashes) < _REMEMBERED_TAGS:
            self.tag_hashes[tags] = found
        return found

    def message_end(self, queue_offset: int) -> int:
        """Return the CommitLog offset after a message, 0 if the queue does not hold it (``message_entry``)."""
        entry = self.message_entry(queue_offset)
        return entry.end if entry else 0

    # -- writing

    @abstractmethod
    def make_room(self, end: int) -> None:
        """Allocate files and blocks for all entries before queue offset ``end``, pending ones included.

        Call it before a message is appended to the CommitLog, so that its entry cannot fail afterwards.

        Raises:
            StoreFullError: The disk has no room.
            StoreError: A file cannot be created.
        """

    @abstractmethod
    def put(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> None:
        """Enter a record whose first message has ``queue_offset``; its messages become the last that readers find.

        Raises:
            StoreFullError: The disk has no room for the next file.
            StoreError: The record cannot be read.
        """

    @abstractmethod
    def put_entries(self, queue_offset: int, entries: bytes) -> None:
        """Enter consecutive messages, from the bytes of their entries in an ordinary queue.

        Raises:
            StoreFullError: The disk has no room for the next file.
        """

    @abstractmethod
    def go_on_at(self, queue_offset: int) -> None:
        """Continue at a queue offset beyond the end, on disk as well: the offsets before it were used.

        Readers find no messages there, and continue after them.

        Raises:
            StoreFullError: The disk has no room.
        """

    @abstractmethod
    def hide_from(self, queue_offset: int) -> None:
        """Let readers find the end at a queue offset, until ``cut`` discards the entries from there on."""

    @abstractmethod
    def cut(self, queue_offset: int) -> None:
        """Discard the entries from a queue offset on; all of them, with their files, if it is before the first.

        It blocks, on any thread while nobody writes. Hide the entries from readers first (``hide_from``).

        Raises:
            StoreFullError: The disk has no room to record that the offsets before it were used.
            OSError: The disk failed; the call may be made again.
        """

    # -- reading by queue offset

    @abstractmethod
    def entries(self, queue_offset: int, limit: int) -> Iterator[tuple[int, int, int]]:
        """Return up to ``limit`` entries (physical offset, size, tags code) from ``queue_offset``, within one file."""

    @abstractmethod
    def entry_bytes(self, queue_offset: int, limit: int) -> memoryview:
        """Return the same entries as ``entries``, in the bytes of an ordinary queue."""

    @abstractmethod
    def entry(self, queue_offset: int) -> QueueEntry | None:
        """Return the entry of the record that holds a message, ``None`` when the queue does not hold it."""

    @abstractmethod
    def message_entry(self, queue_offset: int) -> QueueEntry | None:
        """Return ``entry``; for a used offset without a message, the entry of the last message before it.

        Its size is 0 if the messages were lost with a part of the log, which begins at its CommitLog offset.
        """

    @abstractmethod
    def end_of_record(self, queue_offset: int) -> int:
        """Return the queue offset after the record that holds a message."""

    @abstractmethod
    def expected_record(self, queue_offset: int) -> QueuedRecord | None:
        """Return the record of a message as its entry names it, ``None`` if the queue does not hold it."""

    @abstractmethod
    def place_of(self, queue_offset: int) -> tuple[str, int]:
        """Return file and position of an entry, for messages to people."""

    @staticmethod
    @abstractmethod
    def unsynced_entries(file: MappedFile) -> Iterator[tuple[int, int, int]]:
        """Return position, physical offset and size of a file's entries that may not be on disk; no fillers."""

    # -- reading by CommitLog offset

    @abstractmethod
    def position_of(self, physical_offset: int) -> int:
        """Return the queue offset at which the entries of records at and after a physical offset begin."""

    @abstractmethod
    def has_before(self, physical_offset: int, queue_offset: int) -> bool:
        """Return true if a record before a physical offset has an entry soon after a queue offset."""

    @abstractmethod
    def first_offset_from(self, physical_offset: int) -> int:
        """Return the queue offset of the first message at or after a CommitLog offset, else the end (blocks).

        It reads the file, on any thread: a page fault on the mapping would delay all threads.
        """

    # -- life cycle

    @abstractmethod
    def load(self) -> None:
        """Map the files and find where the entries begin and end.

        Raises:
            StoreError: A file is missing or has another size.
        """

    @abstractmethod
    def cut_doubtful(self, report: list[str], before_change: Callable[[], None]) -> bool:
        """Discard the data that ``load`` found after the sound entries; return false if there was none."""

    @property
    @abstractmethod
    def begin_of_files(self) -> int | None:
        """The first queue offset in its files; ``None`` without files."""

    @abstractmethod
    def first_file_without_messages(self) -> MappedFile | None:
        """Return the first file, if all its messages are before ``min_offset`` and it is not the last with entries."""

    @abstractmethod
    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Move ``min_offset`` to the first message that the CommitLog still holds."""
