"""The entries of a ConsumeQueue as columns, as far as they are written. Answers to ``ConsumeQueue``."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketbroker.analytics.files.log_window import WINDOW_SIZE
from rocketbroker.analytics.files.mapped_files import mapped_files, written_entries
from rocketbroker.analytics.files.store_files import StoreFolder, opened
from rocketbroker.analytics.queues.queue_folders import CONSUME_QUEUE
from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.storefile.consume_queue_layout import CQ_STORE_UNIT_SIZE, ENTRY, FILLER_SIZE, is_filler
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY
from rocketbroker.common.errors import StoreError

# So many entries and what is made of them lie in the processor's cache.
_BLOCK: Final = 32 << 10
_REMOTE_BLOCK: Final = WINDOW_SIZE // CQ_STORE_UNIT_SIZE


class QueueNotWholeError(StoreError):
    """A ConsumeQueue does not lead to all messages that it should; caught where the log is read instead."""


class EntryRange(NamedTuple):
    """Entries of a queue from queue offset ``first`` to before ``end``."""

    topic: str
    queue_id: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class QueueEntries:
    """Entries that follow each other, the first at queue offset ``first``; columns of shape (n,)."""

    first: int
    offsets: Positions
    sizes: Positions

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, begin: int, end: int) -> "QueueEntries":
        """Those from number ``begin`` to before number ``end`` of these."""
        return QueueEntries(self.first + begin, self.offsets[begin:end], self.sizes[begin:end])


class _File(NamedTuple):
    path: str
    first: int
    room: int


class QueueFiles:
    """The files of one queue.

    Args:
        folder: the store.
        topic: the queue's topic.
        queue_id: its number.

    Raises:
        QueueNotWholeError: one lacks between two others.
    """

    def __init__(self, folder: StoreFolder, topic: str, queue_id: int) -> None:
        self._folder = folder
        self.topic = topic
        self.queue_id = queue_id
        self._files = [
            _File(path, base // CQ_STORE_UNIT_SIZE, size // CQ_STORE_UNIT_SIZE)
            for base, path, size in mapped_files(folder, f"{CONSUME_QUEUE}/{topic}/{queue_id}")
        ]
        for before, after in zip(self._files, self._files[1:], strict=False):
            if before.first + before.room != after.first:
                raise QueueNotWholeError(f"{self.name}: a file lacks behind {before.path}")

    @property
    def name(self) -> str:
        """Topic and number, for texts."""
        return f"{self.topic}/{self.queue_id}"

    @property
    def capacity(self) -> int:
        """Entries that the files have room for."""
        return sum(file.room for file in self._files)

    def newest(self) -> tuple[int, int] | None:
        """Physical offset and size that the newest entry names; ``None`` without one.

        Looks at a few entries only, so that zeros between entries may mislead it to an older one.
        """
        for file in reversed(self._files):
            with opened(self._folder, file.path) as source:
                written = written_entries(source, file.room, CQ_STORE_UNIT_SIZE)
                if written:
                    last = source.read_at((written - 1) * CQ_STORE_UNIT_SIZE, CQ_STORE_UNIT_SIZE)
                    offset, size, _ = ENTRY.unpack(last)
                    return None if is_filler(offset, size) else (offset, size)
        return None

    def whole(self) -> QueueEntries:
        """All entries without fillers; :class:`QueueNotWholeError` when something is wrong with one."""
        offsets, sizes = _columns([self._piece(file, 0, file.room) for file in self._files])
        end = len(sizes) - _leading((offsets | sizes)[::-1] == 0)
        begin = _leading((offsets[:end] == 0) & (sizes[:end] == FILLER_SIZE))
        first = self._files[0].first if self._files else 0
        return self._checked(first + begin, offsets[begin:end], sizes[begin:end])

    def blocks(self) -> Iterator[QueueEntries]:
        """All entries without fillers, some at a time, up to the first zeros; what is behind these is not looked at.

        They are in order, from one to the next as well: :class:`QueueNotWholeError` when something is wrong with one.
        """
        behind = 0
        for first, raw in self._raw_blocks():
            offsets, sizes = _columns([raw])
            begin = 0 if behind else _leading((offsets == 0) & (sizes == FILLER_SIZE))
            end = len(sizes) if sizes[-1] else len(sizes) - _leading((offsets | sizes)[::-1] == 0)
            if begin < end:
                block = self._checked(first + begin, offsets[begin:end], sizes[begin:end])
                if block.offsets[0] < behind:
                    raise self._in_disorder()
                behind = int(block.offsets[-1] + block.sizes[-1])
                yield block
            if end < len(sizes):
                return

    def every(self, step: int, first: int) -> Positions:
        """The offsets that each ``step``-th entry names, number ``first`` among them, and the last before zeros.

        Nothing is checked; no order is kept to.
        """
        found = [np.empty(0, np.int64)]
        for number, raw in self._raw_blocks():
            end = len(raw) if raw["size"][-1] else _leading(raw["size"] != 0)
            offsets = raw["commit_log_offset"][:end]
            found += [offsets[(first - number) % step :: step].astype(np.int64), offsets[-1:].astype(np.int64)]
            if end < len(raw):
                break
        return np.concatenate(found)

    def _raw_blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Queue offset of the first and the entries as stored, at least one, in memory that is used again."""
        most = _BLOCK if self._folder.root.is_local else _REMOTE_BLOCK
        memory = np.empty(0, CONSUME_QUEUE_ENTRY)
        for file in self._files:
            if len(memory) < min(most, file.room):
                memory = np.empty(min(most, file.room), CONSUME_QUEUE_ENTRY)
            with opened(self._folder, file.path) as source:
                for begin in range(0, file.room, most):
                    block = memory[: file.room - begin]
                    read = source.read_into(begin * CQ_STORE_UNIT_SIZE, block.view(np.uint8).data)
                    if read < block.nbytes:
                        raise QueueNotWholeError(f"{file.path} became shorter while it was read")
                    yield file.first + begin, block

    def range(self, first: int, end: int) -> QueueEntries:
        """Entries from queue offset ``first`` to before ``end``; :class:`QueueNotWholeError` when one is wrong."""
        pieces = [
            self._piece(file, max(first - file.first, 0), min(end - file.first, file.room))
            for file in self._files
            if file.first < end and file.first + file.room > first
        ]
        offsets, sizes = _columns(pieces)
        if len(offsets) != end - first:
            raise QueueNotWholeError(f"{self.name}: entries from {first} to {end} are not all there")
        return self._checked(first, offsets, sizes)

    def _piece(self, file: _File, begin: int, end: int) -> NDArray[Any]:
        data = self._folder.read(file.path, begin * CQ_STORE_UNIT_SIZE, (end - begin) * CQ_STORE_UNIT_SIZE)
        return np.frombuffer(data, CONSUME_QUEUE_ENTRY, len(data) // CQ_STORE_UNIT_SIZE)

    def _checked(self, first: int, offsets: Positions, sizes: Positions) -> QueueEntries:
        if len(offsets) and (offsets[0] < 0 or sizes.min() <= 0 or (offsets[1:] < offsets[:-1] + sizes[:-1]).any()):
            raise self._in_disorder()
        return QueueEntries(first, offsets, sizes)

    def _in_disorder(self) -> QueueNotWholeError:
        return QueueNotWholeError(f"{self.name}: entries do not lead to records one after the other")


def _columns(pieces: list[NDArray[Any]]) -> tuple[Positions, Positions]:
    """Offsets and sizes of the entries of all pieces."""
    none = [np.empty(0, np.int64)]
    offsets, sizes = (
        [piece[name].astype(np.int64) for piece in pieces] or none for name in ("commit_log_offset", "size")
    )
    return np.concatenate(offsets), np.concatenate(sizes)


def _leading(mask: NDArray[np.bool_]) -> int:
    """How many values hold before the first that does not."""
    return len(mask) if mask.all() else int(mask.argmin())
