"""Progress and changes of tables that are answered for only when they are on disk."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeVar

# Progress of a service that stores copies of messages, held back until the copies are on disk.
#
# If the file were ahead of the copies, a power loss would lose messages that were on disk long before they were due.

P = TypeVar("P")


class LogEnds(Protocol):
    """End of the CommitLog, and of the part that is on disk; ``CommitLogFlusher`` knows both."""

    @property
    def max_offset(self) -> int:
        """CommitLog offset after the last message."""

    @property
    def flushed_offset(self) -> int:
        """CommitLog offset before which all is on disk."""


class DurableProgress(Generic[P]):
    """Holds progress back until the copies stored for it are on disk.

    Args:
        log: the ends of the log that has the copies.
        value: initial progress.
    """

    def __init__(self, log: LogEnds, value: P) -> None:
        self._log = log
        self.value = value
        # Pairs of the log's end when progress was made, and the progress.
        self._waiting: deque[tuple[int, P]] = deque()

    @property
    def is_behind(self) -> bool:
        """True if some progress may not be written yet."""
        return bool(self._waiting)

    def made(self, progress: P) -> None:
        """Note progress whose copies are in the log; it must not be changed afterwards."""
        end = self._log.max_offset
        if self._waiting and self._waiting[-1][0] == end:
            self._waiting.pop()
        self._waiting.append((end, progress))

    def advance(self) -> bool:
        """Set ``value`` to the progress whose copies are on disk; return true if it has changed."""
        flushed = self._log.flushed_offset
        advanced = False
        while self._waiting and self._waiting[0][0] <= flushed:
            self.value = self._waiting.popleft()[1]
            advanced = True
        return advanced

    def replace(self, value: P) -> None:
        """Continue from another value, such as a file's."""
        self.value = value
        self._waiting.clear()


V = TypeVar("V")


class _Change(Generic[V]):
    """One entry: its value on disk (``None`` without one), and the number of its last change."""

    __slots__ = ("number", "on_disk")

    def __init__(self, on_disk: V | None) -> None:
        self.on_disk = on_disk
        self.number = 0


class TableChanges(Generic[V]):
    """Changes the entries of one table, and remembers their values on disk.

    A write covers the changes made before it began. When it fails, each entry that it covers goes back to its value on
    disk, unless it was changed again: that change belongs to the next write. Values are replaced, never altered in
    place.
    """

    def __init__(self, table: dict[str, V]) -> None:
        self._table = table
        self._changes: dict[str, _Change[V]] = {}
        self._writing: dict[str, V | None] = {}
        self._last = self._last_written = 0

    def put(self, name: str, value: V | None) -> None:
        """Replace an entry, or remove it with ``None``."""
        change = self._changes.get(name)
        if change is None:
            change = self._changes[name] = _Change(self._table.get(name))
        self._last += 1
        change.number = self._last
        self._set(name, value)

    def follow(self, table: Mapping[str, V], gone: Iterable[str] = ()) -> bool:
        """Take over the entries of a master's table, and remove those that are gone; return true if any differs."""
        changed = [name for name, value in table.items() if self._table.get(name) != value]
        removed = [name for name in gone if name in self._table]
        for name in changed:
            self.put(name, table[name])
        for name in removed:
            self.put(name, None)
        return bool(changed or removed)

    def on_disk(self, name: str) -> V | None:
        """Return the value of an entry on disk."""
        change = self._changes.get(name)
        return self._table.get(name) if change is None else change.on_disk

    def begin_write(self) -> None:
        """Note what a write that begins now covers."""
        self._writing = {name: self._table.get(name) for name in self._changes}
        self._last_written = self._last

    def written(self) -> dict[str, V | None]:
        """Note that the write is on disk; return its entries, ``None`` for removed ones."""
        for name, value in self._writing.items():
            if self._changes[name].number <= self._last_written:
                del self._changes[name]
            else:
                self._changes[name].on_disk = value
        written, self._writing = self._writing, {}
        return written

    def refused(self) -> list[str]:
        """Undo what a failed write covers; return the names of the undone entries."""
        undone = [name for name in self._writing if self._changes[name].number <= self._last_written]
        for name in undone:
            self._set(name, self._changes.pop(name).on_disk)
        self._writing = {}
        return undone

    def _set(self, name: str, value: V | None) -> None:
        if value is None:
            self._table.pop(name, None)
        else:
            self._table[name] = value
