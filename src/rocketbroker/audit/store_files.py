"""Files of a store as its audit reads them, on this machine or elsewhere, and facts about them that all parts share."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.topic_validator import LMQ_PREFIX
from rocketbroker.codec.storefile.consume_queue_layout import RETIRED
from rocketbroker.codec.storefile.queue_files import ENTRIES, QueueFiles
from rocketbroker.codec.storefile.record_search import Found, inspect
from rocketbroker.codec.storefile.store_file import LogWindow, StoreFile, offset_files, offset_to_file_name
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import CorruptRecordError, StoreError
from rocketbroker.common.local_file import LocalFile, lock_holders, measure

COMMIT_LOG: Final = "commitlog"
INDEX: Final = "index"
CONFIG: Final = "config"
CHECKPOINT: Final = "checkpoint"
# Greatest number of a queue.
_MOST: Final = (1 << 31) - 1


class OpenFile(StoreFile, Protocol):
    """A file that is open for reading."""

    def close(self) -> None: ...


class StoreFolder(Protocol):
    """The files of a store by their paths in it, with "/" between names."""

    def folders(self, folder: str = "") -> list[str]:
        """Return the sorted names of the folders in a folder; empty if it does not exist."""

    def files(self, folder: str = "") -> dict[str, int]:
        """Return the files in a folder, sorted by name, with their sizes; empty if it does not exist."""

    def open(self, path: str, what: str = "file") -> OpenFile:
        """Open a file; raise :class:`StoreError`, which calls it ``what``, if it cannot be read."""

    def read_if_there(self, path: str) -> bytes | None:
        """Return the bytes of a file, ``None`` if it does not exist; raise :class:`StoreError` if it is unreadable."""

    def name_of(self, path: str) -> str:
        """Return a file's full path, for messages and reports."""


class LocalStore:
    """A ``StoreFolder`` of this machine, whose parts are in the folders that the settings name."""

    def __init__(self, config: MessageStoreConfig) -> None:
        self._parts = {
            COMMIT_LOG: config.commit_log_dir,
            "consumequeue": config.consume_queue_dir,
            "batchconsumequeue": config.batch_consume_queue_dir,
            INDEX: config.index_dir,
            CONFIG: config.config_dir,
            CHECKPOINT: config.checkpoint_path,
        }
        self._root = Path(config.store_path_root_dir)

    def _path(self, path: str) -> Path:
        part, _, rest = path.partition("/")
        return self._parts[part] / rest if part in self._parts else self._root / path

    def folders(self, folder: str = "") -> list[str]:
        path = self._path(folder)
        return sorted(each.name for each in path.iterdir() if each.is_dir()) if path.is_dir() else []

    def files(self, folder: str = "") -> dict[str, int]:
        path = self._path(folder)
        found = sorted(path.iterdir()) if path.is_dir() else []
        return {each.name: each.stat().st_size for each in found if each.is_file()}

    def open(self, path: str, what: str = "file") -> LocalFile:
        return LocalFile(self._path(path), partial(self._unreadable, path, what))

    def read_if_there(self, path: str) -> bytes | None:
        try:
            return self._path(path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(path, "file", error) from error

    def name_of(self, path: str) -> str:
        return str(self._path(path))

    def _unreadable(self, path: str, what: str, error: OSError) -> StoreError:
        hint = " (a broker deletes old files)" if isinstance(error, FileNotFoundError) else ""
        return StoreError(f"cannot read the {what} {self._path(path)}: {error.strerror}{hint}")


def read_state(config: MessageStoreConfig) -> StoreState:
    """Return the state in which the last broker left the store that ``config`` names, and who has it open."""
    holders = lock_holders(Path(config.store_path_root_dir) / "lock")
    try:
        checkpoint = config.checkpoint_path.read_bytes()
    except OSError:
        checkpoint = None  # the check of the checkpoint reports the fault
    return StoreState.of(config.abort_path.exists() or bool(holders), holders, checkpoint)


class LogSegment(NamedTuple):
    """A file of the CommitLog: path in the store, physical offset of its first byte, size, end of its data."""

    path: str
    base: int
    size: int
    data_end: int


def log_segments(directory: Path) -> list[LogSegment]:
    """Return the files of a CommitLog of this machine by offset.

    Raises:
        StoreError: The folder does not exist, or a file cannot be read.
    """
    try:
        names = [path.name for path in directory.iterdir() if path.is_file()]
    except OSError as error:
        raise StoreError(f"{directory} is not a CommitLog: {error.strerror}") from error
    found = []
    for file in offset_files(dict.fromkeys(names, 0)):
        measured = measure(file.base, directory / file.path)
        found.append(LogSegment(f"{COMMIT_LOG}/{file.path}", file.base, measured.size, measured.data_end))
    return found


class Expiry(NamedTuple):
    """Age at which messages expire: now in ms, fileReservedTime, and the hours ahead that are of interest."""

    now_ms: int
    reserved_hours: int = 72
    within_hours: int = 24


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Options of a check.

    ``topic`` limits the queues to one topic. ``limit`` findings of each rule and severity are kept, all are counted.
    Sizes that are 0 are read from the files. Without ``expiry`` no message is said to expire.
    """

    check_crc: bool = True
    topic: str | None = None
    limit: int = 20
    log_file_size: int = 0
    slot_count: int = 0
    index_file_size: int = 0
    expiry: Expiry | None = None


@dataclass(frozen=True)
class StoreFacts:
    """Facts about a store that are known before its files are compared; picklable.

    ``deleted`` has the physical offset before which the messages of a topic were deleted, ``offsets`` the group and the
    consumer offset of each consumer by topic and queue number.
    """

    segments: tuple[LogSegment, ...]
    state: StoreState
    options: AuditOptions = AuditOptions()
    delay_levels: Mapping[int, int] = field(default_factory=dict)
    deleted: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[tuple[str, int], Sequence[tuple[str, int]]] = field(default_factory=dict)

    @cached_property
    def with_data(self) -> tuple[LogSegment, ...]:
        """The files up to the last with data; an empty one before it was lost and recreated."""
        written = [number for number, segment in enumerate(self.segments) if segment.data_end]
        return self.segments[: written[-1] + 1] if written else ()

    @property
    def log_begin(self) -> int:
        """Physical offset of the first byte of the log."""
        return self.segments[0].base if self.segments else 0

    def segments_of(self, offsets: Positions) -> Positions:
        """Return the number of the segment in ``with_data`` of each offset, which is not before the first."""
        bases = np.array([segment.base for segment in self.with_data], np.int64)
        found: Positions = np.searchsorted(bases, offsets, side="right") - 1
        return found

    def wants(self, topic: str) -> bool:
        """Return true if the queues of a topic are to check."""
        return self.options.topic in {None, topic}


class Spans(dict[int, tuple[int, int]]):
    """By segment: number of the first entry that leads into it, and number after the last one."""

    def add(self, facts: StoreFacts, first: int, offsets: Positions) -> None:
        """Add consecutive entries by their offsets; those that lead before the log belong to expired messages."""
        there = np.flatnonzero(offsets >= facts.log_begin)
        if not len(there) or not facts.with_data:
            return
        segments = facts.segments_of(offsets[there])
        low, high = np.full(len(facts.with_data), -1), np.full(len(facts.with_data), -1)
        low[segments[::-1]] = there[::-1] + first  # numpy keeps the last of several values, here the first entry
        high[segments] = there + first + 1
        for segment in np.flatnonzero(high >= 0).tolist():
            begin, end = self.get(segment, (int(low[segment]), 0))
            self[segment] = min(begin, int(low[segment])), max(end, int(high[segment]))


def runs_of(numbers: Positions) -> NDArray[np.int64]:
    """Return the runs of consecutive numbers among ascending ones: first number, and number after the last."""
    if not len(numbers):
        return np.empty((0, 2), np.int64)
    cuts = np.flatnonzero(np.diff(numbers) > 1)
    firsts, lasts = numbers[np.concatenate(([0], cuts + 1))], numbers[np.concatenate((cuts, [-1]))]
    return np.stack([firsts, lasts + 1], axis=1).astype(np.int64)


def in_runs(runs: NDArray[np.int64], first: int, count: int) -> NDArray[np.bool_]:
    """Return a mask of ``count`` numbers from ``first`` on that are in ``runs``."""
    steps = np.zeros(count + 1, np.int64)
    np.add.at(steps, np.clip(runs[:, 0] - first, 0, count), 1)
    np.add.at(steps, np.clip(runs[:, 1] - first, 0, count), -1)
    inside: NDArray[np.bool_] = np.cumsum(steps[:-1]) > 0
    return inside


def opened(folder: StoreFolder, path: str, *, empty_if_gone: bool = False) -> AbstractContextManager[StoreFile]:
    """Open a file for a ``with`` block; one that a broker has removed may be read as an empty one."""
    try:
        return closing(folder.open(path))
    except StoreError as error:
        if empty_if_gone and isinstance(error.__cause__, FileNotFoundError):
            return closing(_Gone())
        raise


class _Gone:
    size = 0

    def read_at(self, position: int, length: int) -> bytes:
        return b""

    def read_into(self, position: int, buffer: memoryview) -> int:
        return 0

    def close(self) -> None: ...


class QueueFolder(QueueFiles):
    """Entries of one queue.

    Args:
        folder: the store.
        path: ``consumequeue/<topic>/<queueId>``, or the same in ``batchconsumequeue``.
        empty_if_gone: true to read nothing from a file that is removed after it was listed.
    """

    def __init__(self, folder: StoreFolder, path: str, *, empty_if_gone: bool = False) -> None:
        files = [file for file in offset_files(folder.files(path), path) if file.size]
        super().__init__(
            files, partial(opened, folder, empty_if_gone=empty_if_gone), ENTRIES[path.split("/", maxsplit=1)[0]]
        )
        self.path = path

    def place(self, number: int) -> tuple[str, int]:
        """Return file and position of an entry."""
        at = number * self.layout.itemsize
        file_size = self.file_size
        position = at % file_size if file_size else at
        return f"{self.path}/{offset_to_file_name(at - position)}", position


def queue_paths(folder: StoreFolder) -> Iterator[str]:
    """Yield the paths of the queues by kind, topic and number, without deleted topics and LMQs.

    The entries of an LMQ lead to records of other topics (multi-dispatch).
    """
    for kind in ENTRIES:
        for topic in folder.folders(kind):
            if not RETIRED.search(topic) and not topic.startswith(LMQ_PREFIX):
                names = [name for name in folder.folders(f"{kind}/{topic}") if name.isascii() and name.isdigit()]
                numbers = sorted(int(name) for name in names if str(int(name)) == name and int(name) <= _MOST)
                yield from (f"{kind}/{topic}/{number}" for number in numbers)


def queue_name(path: str) -> tuple[str, int]:
    """Return topic and number of the queue with a path."""
    _, topic, number = path.split("/")
    return topic, int(number)


def read_record(folder: StoreFolder, segments: Sequence[LogSegment], offset: int) -> MessageExt | None:
    """Return the record that begins at a physical offset, if one does."""
    segment = next((each for each in segments if each.base <= offset < each.base + each.size), None)
    if segment is None:
        return None
    with opened(folder, segment.path, empty_if_gone=True) as source:
        window = LogWindow(source, segment)
        found, size = inspect(window, offset - segment.base)
        try:
            return decode_record(window.at(offset - segment.base, size)) if found is Found.RECORD else None
        except CorruptRecordError:
            return None


def usual(sizes: Sequence[int]) -> int:
    """Return the most frequent size other than 0, 0 without one."""
    known = [size for size in sizes if size]
    return max(set(known), key=known.count, default=0)
