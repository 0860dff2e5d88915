"""Entries of a table that differ from the disk, so that a failed write can be undone."""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

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

    Args:
        table: the table, changed in place.
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
