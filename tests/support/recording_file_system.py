"""A file system that keeps a journal of all that is written, and can tell what a power loss would leave at any point.

Files are real ones, so that they can be mapped; beside them goes a journal of writes, sizes, names and syncs. ``Disk``
plays a journal back and makes an image of what may be on disk at that moment: what was synced, and of the rest nothing,
all, or any pages in any version, whatever their order, since the kernel writes mapped pages back as it likes.
"""

import ctypes
import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from rocketbroker.common.file_system import LocalFileSystem, RangeWatcher
from rocketbroker.common.platform import Mapping, data_ranges

PAGE = 4096
SECTOR = 512
ROOT = 0


class Event(NamedTuple):
    """One entry of the journal.

    ``kind`` is write, size, sync-begin, sync-end, sync-failed (of the file ``node``), link, link-folder, unlink,
    rename, sync-folder (of the folder ``node``), or mark, which is the test's own.
    """

    kind: str
    node: int = ROOT
    position: int = 0
    data: bytes = b""
    name: str = ""
    other: int = ROOT
    new_name: str = ""
    mark: object = None


class RecordingFileSystem(LocalFileSystem):
    """Works below ``root`` and keeps the journal, which begins with what is there, as if it were on disk.

    ``fault`` is asked before each operation, by its name and path, and may raise an ``OSError`` for it to end with.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.journal: list[Event] = []
        self.fault: Callable[[str, Path], None] = lambda _operation, _path: None
        self._nodes: dict[Path, int] = {root: ROOT}
        self._count = ROOT
        self._paths: dict[int, Path] = {}
        self._open: dict[int, int] = {}
        self._maps: dict[int, Mapping] = {}
        # Nodes of mapped files by address.
        self._mapped: dict[int, int] = {}
        self._lock = threading.RLock()
        root.mkdir(parents=True, exist_ok=True)
        self._adopt(root)

    def _adopt(self, folder: Path) -> None:
        for path in sorted(folder.iterdir()):
            self._new_node("link-folder" if path.is_dir() else "link", path)
            if path.is_dir():
                self._adopt(path)
            else:
                node = self._nodes[path]
                self.journal += [
                    Event("size", node, path.stat().st_size),
                    *(Event("write", node, start, data) for start, data in _data_of(path)),
                    Event("sync-begin", node),
                    Event("sync-end", node),
                ]
        self.journal.append(Event("sync-folder", self._nodes[folder]))

    def mark(self, mark: object) -> None:
        """Put the test's own entry into the journal."""
        self.journal.append(Event("mark", mark=mark))

    def _new_node(self, kind: str, path: Path) -> None:
        self._count += 1
        self._nodes[path] = self._count
        self.journal.append(Event(kind, self._nodes[path.parent], name=path.name, other=self._count))

    def make_folders(self, path: Path) -> list[Path]:
        self.fault("make_folders", path)
        with self._lock:
            missing = [folder for folder in (path, *path.parents) if not folder.exists()]
            made = super().make_folders(path)
            for folder in reversed(missing):
                self._new_node("link-folder", folder)
            return made

    def open(self, path: Path) -> int:
        return self._opened(path, super().open)

    def reopen(self, path: Path) -> int:
        return self._opened(path, super().reopen)

    def _opened(self, path: Path, really_open: Callable[[Path], int]) -> int:
        self.fault("open", path)
        with self._lock:
            fd = really_open(path)
            if path not in self._nodes:
                self._new_node("link", path)
            self._paths[fd], self._open[fd] = path, self._nodes[path]
            return fd

    def close(self, fd: int) -> None:
        with self._lock:
            # Before the number is given to another file.
            for table in (self._paths, self._open, self._maps):
                table.pop(fd, None)
            super().close(fd)

    def set_size(self, fd: int, size: int) -> None:
        self.fault("set_size", self._paths[fd])
        with self._lock:
            super().set_size(fd, size)
            self.journal.append(Event("size", self._open[fd], size))

    def map(self, fd: int, size: int) -> Mapping:
        self.fault("map", self._paths[fd])
        with self._lock:
            self._maps[fd] = super().map(fd, size)
            self._mapped[ctypes.addressof(self._maps[fd])] = self._open[fd]
        return self._maps[fd]

    def watcher(self, fd: int) -> RangeWatcher | None:
        node, mapped = self._open[fd], self._maps[fd]

        def stored(start: int, end: int) -> None:
            self.journal.append(Event("write", node, start, bytes(memoryview(mapped)[start:end])))

        return stored

    def allocate(self, fd: int, start: int, length: int) -> None:
        self.fault("allocate", self._paths[fd])
        super().allocate(fd, start, length)

    def write(self, fd: int, position: int, data: bytes | memoryview) -> None:
        self.fault("write", self._paths[fd])
        with self._lock:
            super().write(fd, position, data)
            self.journal.append(Event("write", self._open[fd], position, bytes(data)))

    def sync(self, fd: int) -> None:
        self._sync(self._open[fd], self._paths[fd])

    def sync_mapped(self, mapping: Mapping) -> None:
        node = self._mapped[ctypes.addressof(mapping)]
        self._sync(node, next((path for path, each in list(self._nodes.items()) if each == node), self.root))

    def _sync(self, node: int, path: Path) -> None:
        self.journal.append(Event("sync-begin", node))
        try:
            self.fault("sync", path)
        except OSError:
            self.journal.append(Event("sync-failed", node))
            raise
        self.journal.append(Event("sync-end", node))

    def sync_folder(self, path: Path) -> None:
        self.fault("sync_folder", path)
        with self._lock:
            if path in self._nodes:
                self.journal.append(Event("sync-folder", self._nodes[path]))

    def rename(self, old: Path, new: Path) -> None:
        self.fault("rename", old)
        with self._lock:
            super().rename(old, new)
            self.journal.append(
                Event(
                    "rename", self._nodes[old.parent], name=old.name, other=self._nodes[new.parent], new_name=new.name
                )
            )
            self._nodes = {_moved(path, old, new): node for path, node in self._nodes.items() if path != new}
            self._paths = {fd: _moved(path, old, new) for fd, path in self._paths.items()}

    def unlink(self, path: Path) -> None:
        self.fault("unlink", path)
        with self._lock:
            super().unlink(path)
            if self._nodes.pop(path, None) is not None:
                self.journal.append(Event("unlink", self._nodes[path.parent], name=path.name))

    def remove_folder(self, path: Path) -> None:
        self.fault("remove_folder", path)
        with self._lock:
            super().remove_folder(path)
            if self._nodes.pop(path, None) is not None:
                self.journal.append(Event("unlink", self._nodes[path.parent], name=path.name))


def _data_of(path: Path) -> list[tuple[int, bytes]]:
    with path.open("rb") as file:
        return [
            (start, os.pread(file.fileno(), end - start, start))
            for start, end in data_ranges(file.fileno(), 0, 1 << 40)
        ]


def _moved(path: Path, old: Path, new: Path) -> Path:
    return new / path.relative_to(old) if path.is_relative_to(old) else path


class Loss(Enum):
    """Loss of unsynced writes in a crash."""

    NOTHING = "kept"  # the process is killed, the page cache stays
    ALL = "dropped"
    PAGES = "pages"  # any pages, each in any version that it had since the last sync; any of the last names
    SECTORS = "torn"  # likewise, and within a page any sectors


@dataclass
class _File:
    pages: dict[int, bytes] = field(default_factory=dict)
    size: int = 0
    # What was not synced, oldest first; and how many of it the sync that runs has begun with.
    pending: list[Event] = field(default_factory=list)
    syncing: int = 0
    # Those that a failed sync left out: later syncs leave them out as well.
    left_out: set[int] = field(default_factory=set)


@dataclass
class _Folder:
    names: dict[str, int] = field(default_factory=dict)
    pending: list[Event] = field(default_factory=list)


class Disk:
    """Contents of the disk after the applied events: those certain, and those that may be there."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._folders: dict[int, _Folder] = {ROOT: _Folder()}

    def apply(self, event: Event) -> None:
        """Apply one event."""
        if event.kind in {"write", "size", "sync-begin", "sync-end", "sync-failed"}:
            self._apply_to_file(self._files[event.node], event)
        elif event.kind != "mark":
            self._apply_to_folder(self._folders[event.node], event)

    def _apply_to_file(self, file: _File, event: Event) -> None:
        match event.kind:
            case "sync-begin":
                file.syncing = len(file.pending)
            case "sync-end":
                self._synced(file)
            case "sync-failed":
                begun = [part for one in file.pending[: file.syncing] for part in _by_page(one)]
                file.pending[: file.syncing] = begun
                file.left_out |= {id(one) for one in begun}
            case _:
                file.pending.append(event)

    def _apply_to_folder(self, folder: _Folder, event: Event) -> None:
        match event.kind:
            case "sync-folder":
                folder.names = _names(folder, len(folder.pending))
                folder.pending = []
                return
            case "link":
                self._files[event.other] = _File()
            case "link-folder":
                self._folders[event.other] = _Folder()
            case "rename":
                assert event.other == event.node, "a rename from one folder to another is not played back"
        folder.pending.append(event)

    @staticmethod
    def _synced(file: _File) -> None:
        begun, rest = file.pending[: file.syncing], file.pending[file.syncing :]
        done = [event for event in begun if id(event) not in file.left_out]
        for event in done:
            if event.kind == "size":
                _resize(file, event.position)
        for number, versions in _versions(file.pages, done).items():
            file.pages[number] = versions[-1]
        if done:
            file.size = max(file.size, *(_end(event) for event in done))
        # Writes left out earlier and rewritten since are dropped; they would overwrite the new data.
        anew = {_place(part) for event in done for part in _by_page(event)}
        file.pending = [event for event in begun if id(event) in file.left_out and _place(event) not in anew] + rest

    def image(self, into: Path, loss: Loss, seed: int) -> None:
        """Write what a crash now may leave below a folder that is made."""
        self._write_folder(into, ROOT, loss, random.Random(seed))

    def _write_folder(self, path: Path, node: int, loss: Loss, chance: random.Random) -> None:
        path.mkdir()
        folder = self._folders[node]
        count = {Loss.NOTHING: len(folder.pending), Loss.ALL: 0}.get(loss)
        names = _names(folder, chance.randint(0, len(folder.pending)) if count is None else count)
        for name, child in sorted(names.items()):
            if child in self._folders:
                self._write_folder(path / name, child, loss, chance)
            else:
                _write_file(path / name, self._files[child], loss, chance)


def _names(folder: _Folder, count: int) -> dict[str, int]:
    """Return the names of a folder after the first of its unsynced changes."""
    names = dict(folder.names)
    for event in folder.pending[:count]:
        if event.kind in {"link", "link-folder"}:
            names[event.name] = event.other
        elif event.kind == "unlink":
            names.pop(event.name, None)
        elif event.name in names:
            names[event.new_name] = names.pop(event.name)
    return names


def _end(event: Event) -> int:
    return event.position + len(event.data)


def _by_page(event: Event) -> list[Event]:
    """Return a write as one for each page."""
    if event.kind == "size":
        return [event]
    ends = [*range(event.position // PAGE * PAGE + PAGE, _end(event), PAGE), _end(event)]
    starts = [event.position, *ends[:-1]]
    return [
        event._replace(position=start, data=event.data[start - event.position : end - event.position])
        for start, end in zip(starts, ends, strict=True)
    ]


def _place(event: Event) -> int:
    """Return the page of a write, -1 for the size."""
    return -1 if event.kind == "size" else event.position // PAGE


def _resize(file: _File, size: int) -> None:
    file.size = size
    file.pages = {number: page for number, page in file.pages.items() if number * PAGE < size}


def _versions(pages: dict[int, bytes], events: list[Event]) -> dict[int, list[bytes]]:
    """Return for each page its contents before the events and after each event that touched it."""
    found: dict[int, list[bytes]] = {}
    for event in events:
        if event.kind == "size":
            for number in [number for number in found if number * PAGE >= event.position]:
                found[number].append(bytes(PAGE))
            continue
        for number in range(event.position // PAGE, -(-_end(event) // PAGE)):
            versions = found.setdefault(number, [pages.get(number, bytes(PAGE))])
            start = max(event.position, number * PAGE)
            end = min(_end(event), (number + 1) * PAGE)
            page = bytearray(versions[-1])
            page[start - number * PAGE : end - number * PAGE] = event.data[
                start - event.position : end - event.position
            ]
            versions.append(bytes(page))
    return found


def _write_file(path: Path, file: _File, loss: Loss, chance: random.Random) -> None:
    pages = dict(file.pages)
    size = file.size
    if loss is not Loss.ALL:
        # A file that grew is as large as one of its sizes; a page beyond it is lost.
        sizes = [size]
        for event in file.pending:
            sizes.append(event.position if event.kind == "size" else max(sizes[-1], _end(event)))
        size = sizes[-1] if loss is Loss.NOTHING else chance.choice(sizes)
        for number, versions in _versions(pages, file.pending).items():
            pages[number] = _some_version(versions, loss, chance)
    with path.open("wb") as out:
        out.truncate(size)
        for number, page in pages.items():
            if number * PAGE < size and page.strip(b"\0"):
                out.seek(number * PAGE)
                out.write(page[: size - number * PAGE])


def _some_version(versions: list[bytes], loss: Loss, chance: random.Random) -> bytes:
    if loss is Loss.NOTHING:
        return versions[-1]
    if loss is Loss.PAGES:
        return chance.choice(versions)
    return b"".join(chance.choice(versions)[at : at + SECTOR] for at in range(0, PAGE, SECTOR))
