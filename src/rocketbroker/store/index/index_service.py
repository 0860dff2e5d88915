"""The index files and the keys that wait for them (org.apache.rocketmq.store.index.IndexService).

Keys wait until they are enough for numpy to pay off, or until a query: the store enters waiting keys before each query,
so that it finds every dispatched message.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.storefile.index_file_layout import (
    INDEX_HEADER_SIZE,
    build_key,
    build_tag_key,
    decode_header,
    file_size,
    key_hash_of,
)
from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.store.index.index_keys import KeyRuns, keys_of
from rocketbroker.store.logfile.damaged_files import set_aside
from rocketbroker.store.queue.dispatch_request import DispatchRequest, DispatchRun, IndexKeys

if TYPE_CHECKING:
    from rocketbroker.store.index.index_file import IndexFile

# Messages that are worth a batch; a tick of the store enters fewer. Further keys of a message count as well.
BATCH_MESSAGES = 1024
# Keys that are hashed and entered at once, some 15 ms of the event loop; a message counts as one and each further key.
AT_ONCE = 4096
# Keys that may wait unhashed while the index is out of service: hashed ones take less memory.
_MOST_UNHASHED = 8 * AT_ONCE


class IndexService:
    """The index: enters keys and answers queries.

    Args:
        slot_count: maxHashSlotNum.
        entry_count: maxIndexNum.
        new_name: returns the name of a new file, its local time as ``yyyyMMddHHmmssSSS``.
    """

    def __init__(
        self,
        directory: Path,
        slot_count: int,
        entry_count: int,
        new_name: Callable[[], str],
        file_system: FileSystem = LOCAL,
    ) -> None:
        self._file_system = file_system
        self.directory = directory
        self._slot_count = slot_count
        self._entry_count = entry_count
        self._new_name = new_name
        self.files: list[IndexFile] = []
        # Store time in ms of the last message whose keys are entered.
        self._entered_timestamp = 0
        # Messages up to this CommitLog offset are indexed already; only a new dispatch enters them again.
        self._indexed_to = -1
        # Keys not entered yet, oldest first.
        self._hashed: deque[IndexKeys] = deque()
        # Later batches, or later messages, whose keys are not hashed yet; one of them is empty.
        self._runs = KeyRuns()
        self._requests: list[DispatchRequest] = []
        # Keys of the messages in ``_requests`` beyond one in KEYS.
        self._more_keys = 0

    def load(
        self,
        report: list[str] | None = None,
        expected: Sequence[str] | None = None,
        before_change: Callable[[], None] = lambda: None,
    ) -> int | None:
        """Map the existing files; set a damaged one aside, and remove the files after it (blocks).

        Return the CommitLog offset from which on the index then lacks messages, ``None`` if no file was damaged.

        Args:
            expected: names of all files, if they are known.
        """
        lacks = None
        found = self.directory.iterdir() if self.directory.is_dir() else ()
        paths = deque(sorted(path for path in found if path.name.isdigit() and path.is_file()))
        missing = min(set(expected or ()) - {path.name for path in paths}, default=None)
        while paths and (missing is None or paths[0].name < missing):
            path = paths.popleft()
            if why := self._why_damaged(path):
                before_change()
                aside = set_aside(path, self._file_system)
                lacks = self._lacks_from_here(path, f"{why}; it was set aside as {aside.name}", report)
                break
            self.files.append(self._make(path))
        else:
            if missing is not None:
                lacks = self._lacks_from_here(self.directory / missing, "is missing", report)
        for path in paths:
            before_change()
            self._file_system.unlink(path)
        self._indexed_to = self.end_physical_offset
        return lacks

    def _lacks_from_here(self, path: Path, why: str, report: list[str] | None) -> int:
        if report is not None:
            report.append(f"{path}: {why}; the index is rebuilt from this file on")
        return max(self.end_physical_offset, 0)

    def _why_damaged(self, path: Path) -> str:
        """Return the fault of a file's size or header, empty without one."""
        expected = file_size(self._slot_count, self._entry_count)
        size = path.stat().st_size
        if size not in {0, expected}:
            return f"has {size} bytes instead of {expected} (maxHashSlotNum, maxIndexNum)"
        with path.open("rb", buffering=0) as file:
            header = decode_header(file.read(INDEX_HEADER_SIZE).ljust(INDEX_HEADER_SIZE, b"\0"))
        makes_sense = header.index_count == 1 or (
            header.index_count <= self._entry_count
            and 0 <= header.hash_slot_count <= self._slot_count
            and max(0, self.end_physical_offset) <= header.begin_phy_offset <= header.end_phy_offset
            and header.begin_timestamp >= 0
        )
        return "" if makes_sense else f"its header is invalid: {header}"

    def has_before(self, physical_offset: int) -> bool:
        """Return true if the index has a message before a CommitLog offset."""
        return any(_begins_at(file) < physical_offset for file in self.files)

    @property
    def file_names(self) -> list[str]:
        """Names of the files, in order."""
        return [file.file.path.name for file in self.files]

    def cut(self, physical_offset: int) -> int:
        """Remove the keys of messages from a CommitLog offset on, and emptied files; return the number of keys.

        It blocks, on any thread while no keys are added and nobody calls ``flush``. Waiting keys count as well.

        Raises:
            OSError: The disk failed; the call may be made again.
        """
        self._hash_all()
        waiting = sum(len(keys.offsets) for keys in self._hashed)
        self._hashed = deque(kept for keys in self._hashed if len((kept := keys.before(physical_offset)).offsets))
        count = waiting - sum(len(keys.offsets) for keys in self._hashed)
        while self.files and _begins_at(self.files[-1]) >= physical_offset:
            file = self.files[-1]
            # The name is removed first: a file that the disk keeps must stay in the list, or nobody would remove it.
            removed = file.file.remove()
            self.files = self.files[:-1]
            count += file.header.index_count - 1
            # Queries on other threads may still read it.
            file.given_up = True
            removed.close()
        if self.files and self.end_physical_offset >= physical_offset:
            count += self.files[-1].cut(physical_offset)
        self._indexed_to = self.end_physical_offset
        # Later messages may have earlier store times than those that were removed.
        self._entered_timestamp = 0
        return count

    def sync(self) -> int:
        """Sync the entered keys (blocks; on any thread).

        Return the store time in ms of the last message entered before, 0 without one or if keys could not be entered.

        Raises:
            OSError: The disk failed.
        """
        entered = self._entered_timestamp
        for file in list(self.files):
            try:
                file.sync()
            except OSError:
                # A file removed meanwhile need not be on disk.
                if file in self.files:
                    raise
        return entered

    @property
    def end_physical_offset(self) -> int:
        """CommitLog offset of the last indexed message, -1 without one."""
        indexed = [file.header.end_phy_offset for file in self.files if file.header.index_count > 1]
        return max(indexed, default=-1)

    def add(self, requests: Sequence[DispatchRequest]) -> int:
        """Queue messages that follow those added before, oldest first; return ``waiting``."""
        if self._runs.count:
            self._hash_runs()
        self._requests += requests
        for _, _, _, _, _, _, (_, _, keys, _) in requests:
            if keys is not None and b" " in keys:
                self._more_keys += keys.count(b" ")
        while len(self._requests) + self._more_keys >= _MOST_UNHASHED:
            self._hash_some()
        return self.waiting if self._hashed else len(self._requests) + self._more_keys

    def add_run(self, run: DispatchRun) -> None:
        """Queue messages that follow those added before."""
        if run.joined_unique_keys and not self._requests:
            self._runs.add(run)
            if self._runs.count >= _MOST_UNHASHED:
                self._hashed.append(self._runs.hash_some())
        else:
            self.add(list(run.requests()))

    def add_keys(self, keys: IndexKeys) -> None:
        """Queue keys that follow those added before."""
        self._hash_all()
        self._hashed.append(keys)

    @property
    def waiting(self) -> int:
        """Number of keys that wait for the index; tags, unique and first key are one until hashed."""
        hashed = sum(len(keys.offsets) for keys in self._hashed) if self._hashed else 0
        return len(self._requests) + self._more_keys + self._runs.count + hashed

    def flush(self, most_parts: int = sys.maxsize) -> None:
        """Enter the keys that wait, all or some parts of them, oldest first.

        Raises:
            StoreFullError: The disk has no room; the keys that do not fit are kept for the next attempt.
            StoreError: It failed for another reason; the keys are kept for the next attempt.
        """
        try:
            while most_parts and (self._hashed or self._runs.count or self._requests):
                most_parts -= 1
                if not self._hashed:
                    if self._runs.count:
                        self._hashed.append(self._runs.hash_some())
                    else:
                        self._hash_some()
                while len(self._hashed[0].offsets):
                    self._hashed[0] = self._hashed[0].behind(self._enter(self._hashed[0]))
                self._entered_timestamp = self._hashed.popleft().stored_until
        except StoreError:
            # The clock may be set back while keys wait: they may have earlier times than those entered.
            self._entered_timestamp = 0
            raise

    def _enter(self, keys: IndexKeys) -> int:
        """Enter as many keys as fit into one file; return their number."""
        if keys.offsets[0] <= self._indexed_to:
            return int(keys.offsets.searchsorted(self._indexed_to, side="right"))
        # A damaged record may name a time before 1970. No file has room for one, as their headers begin at 0 at least.
        timestamps = keys.timestamps.clip(0)
        file = self.files[-1] if self.files else self._add_file()
        count = file.fitting(timestamps)
        if not count:
            file = self._add_file()
            count = file.fitting(timestamps)
        file.put_keys(keys.hashes[:count], keys.offsets[:count], timestamps[:count])
        return count

    def _hash_all(self) -> None:
        """Hash all keys that wait."""
        self._hash_runs()
        while self._requests:
            self._hash_some()

    def _hash_runs(self) -> None:
        """Hash the keys of the batches that wait."""
        while self._runs.count:
            self._hashed.append(self._runs.hash_some())

    def _hash_some(self) -> None:
        """Hash the keys of the oldest messages that wait, at least of one."""
        requests, count = self._requests, AT_ONCE
        if self._more_keys:
            keys = count = 0
            for request in islice(requests, AT_ONCE):
                texts = request[6][2]
                keys += 1 if texts is None else 1 + texts.count(b" ")
                if count and keys > AT_ONCE:
                    break
                count += 1
                self._more_keys -= 0 if texts is None else texts.count(b" ")
        self._hashed.append(keys_of(requests[:count]))
        del requests[:count]

    def _make(self, path: Path) -> IndexFile:
        from rocketbroker.store.index.index_file import IndexFile

        return IndexFile(path, self._slot_count, self._entry_count, self._file_system)

    def _add_file(self) -> IndexFile:
        name = self._new_name()
        if self.files and name <= self.files[-1].file.path.name:
            # Files are in the order of their names, whatever the clock does.
            name = str(int(self.files[-1].file.path.name) + 1)
        file = self._make(self.directory / name)
        self.files.append(file)
        return file

    def first_file_before(self, physical_offset: int) -> IndexFile | None:
        """Return the first file, if all its messages are before a CommitLog offset and it is not the last file."""
        if len(self.files) > 1 and self.files[0].header.end_phy_offset < physical_offset:
            return self.files[0]
        return None

    def take_out(self, file: IndexFile) -> None:
        """Take the first file out of service; only on the event loop, where files are added too.

        The list is replaced, not changed: queries on another thread iterate over it.
        """
        if self.files and self.files[0] is file:
            self.files = self.files[1:]

    def search(self, topic: str, key: str, begin_ms: int, end_ms: int, *, tag: bool = False) -> Iterator[int | None]:
        """Yield the entries of a key (or a tag) one by one, newest first (blocks; on any thread).

        Each message is yielded once, as its CommitLog offset; other entries as ``None``. Waiting keys are found only
        after a ``flush``.
        """
        key_hash = key_hash_of(java_hash(build_tag_key(topic, key) if tag else build_key(topic, key)))
        # A message with keys in two files may be in both, entered again after an unclean stop.
        found: set[int] = set()
        for file in self.files[::-1]:
            if file.covers(begin_ms, end_ms):
                for offset in file.chain(key_hash, begin_ms, end_ms):
                    yield None if offset in found else offset
                    if offset is not None:
                        found.add(offset)

    @property
    def last_update(self) -> tuple[int, int]:
        """Store time and CommitLog offset of the last indexed message; zeros without one."""
        if not self.files:
            return 0, 0
        header = self.files[-1].header
        return header.end_timestamp, header.end_phy_offset

    def give_up_queries(self) -> None:
        """Make the queries on other threads end soon, with their results so far."""
        for file in self.files:
            file.given_up = True

    def close(self) -> None:
        """Release all mappings."""
        for file in self.files:
            file.close()
        self.files = []


def _begins_at(file: IndexFile) -> int | float:
    """Return the CommitLog offset of a file's first message; an empty file sorts after all others."""
    return file.header.begin_phy_offset if file.header.index_count > 1 else inf
