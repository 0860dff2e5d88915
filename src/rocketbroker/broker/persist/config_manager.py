"""Tables that live in ``config/*.json`` (org.apache.rocketmq.common.ConfigManager).

The event loop owns each table. ``persist`` marks it as changed; ``ConfigPersistService`` writes changed tables on a
thread of its own (``replace_contents``), so that at any moment the file or its ``.bak`` is whole. The text of a long
table is made there as well. Who changed a table waits for the future of that write before it acknowledges the change; a
write that the disk refuses is undone in memory.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from rocketbroker.broker.persist.table_changes import TableChanges
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.clock import Clock
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.common.table_file import load_table

log = logging.getLogger(__name__)

RETRY_S = 5.0

F = TypeVar("F")

# The reason why a change is not on disk, "" once it is there and whoever depends on it was told.
Settled: TypeAlias = asyncio.Future[str]
# ``ConfigPersistService.submit``.
OnPersist: TypeAlias = Callable[["AnyConfigManager"], Settled | None]


class ConfigManager(ABC, Generic[F]):
    """One table and its file, whose contents make an ``F``.

    Args:
        path: the file; its folder is created when first written.
        on_persist: has the table written (``ConfigPersistService.submit``); ``None`` keeps it in memory only.
    """

    def __init__(self, path: Path, on_persist: OnPersist | None = None) -> None:
        self.path = path
        self._on_persist = on_persist
        # Whether ``load`` found a file or its backup.
        self.found = False

    @abstractmethod
    def encode(self) -> bytes:
        """The table as the file holds it."""

    def encoder(self) -> Callable[[], bytes]:
        """Take the table as it is; the result makes the file of it, and is called on a thread.

        A table that may be long makes its text there.
        """
        data = self.encode()
        return lambda: data

    @abstractmethod
    def parse(self, data: bytes) -> F:
        """Parse the content of a file.

        Raises:
            CodecError: this is no such table.
        """

    @abstractmethod
    def count(self, file: F) -> int:
        """Return the number of entries in the table of a file."""

    @abstractmethod
    def take(self, file: F) -> None:
        """Replace or fill the table by what a file holds."""

    def decode(self, data: bytes) -> None:
        """Replace or fill the table from a file's content; leaves it as it was when it raises.

        Raises:
            CodecError: this is no such table.
        """
        self.take(self.parse(data))

    def persist(self) -> Settled | None:
        """Schedule a write of the table; gives its future, ``None`` for a table in memory only."""
        if self._on_persist is not None:
            return self._on_persist(self)
        self.begin_write()
        self.written()
        return None

    def begin_write(self) -> None:
        """Note what a write covers; called in one step with ``encode``."""

    def written(self) -> Sequence[asyncio.Future[None]]:
        """The disk has what the write covers; gives what those who changed it are to wait for as well."""
        return ()

    def refused(self) -> None:
        """The disk refused the write: undo what it covers, where that can be undone."""

    def load(self, file_system: FileSystem = LOCAL) -> bool:
        """Read the file, else its ``.bak``, as ``load_table`` does.

        Args:
            file_system: the disk.

        Returns:
            Whether there was anything to read.

        Raises:
            ConfigError: there are files and none of them can be read, so that starting would lose the table.
        """
        file = load_table(self.path, self.parse, self.count, file_system)
        self.found = file is not None
        if file is not None:
            self.take(file)
        return self.found


AnyConfigManager: TypeAlias = ConfigManager[Any]


class VersionedConfigManager(ConfigManager[F]):
    """A table whose data version says whether another has the same; each change raises it, and each undone one.

    Args:
        path: as in ``ConfigManager``.
        clock: dates the data version.
        on_persist: as in ``ConfigManager``.
    """

    def __init__(self, path: Path, clock: Clock, on_persist: OnPersist | None = None) -> None:
        super().__init__(path, on_persist)
        self._clock = clock
        self.data_version = DataVersion(timestamp=clock.time_ms())
        self._unsettled: dict[str, Settled] = {}

    @abstractmethod
    def _tables(self) -> Iterable[TableChanges[Any]]:
        """The changes of each table in the file."""

    def changed(self, name: str = "") -> Settled | None:
        """Raise the version and have the table written soon.

        Args:
            name: the entry that was changed, which is unsettled until the change is on disk or undone.
        """
        self.data_version.next_version(self._clock.time_ms())
        settled = self.persist()
        if name and settled is not None:
            self._unsettled[name] = settled
            settled.add_done_callback(partial(self._settle, name))
        return settled

    def settled(self, name: str) -> Settled | None:
        """The future of an entry's last change; ``None`` when none is under way."""
        return self._unsettled.get(name)

    def _settle(self, name: str, settled: Settled) -> None:
        if self._unsettled.get(name) is settled:
            del self._unsettled[name]

    def begin_write(self) -> None:
        """See ``ConfigManager``."""
        for table in self._tables():
            table.begin_write()

    def written(self) -> Sequence[asyncio.Future[None]]:
        """See ``ConfigManager``."""
        for table in self._tables():
            table.written()
        return ()

    def refused(self) -> None:
        """Take back the changes that the write covers; the version goes up, as others may have seen them."""
        undone = [name for table in self._tables() for name in table.refused()]
        if undone:
            log.warning("%s: %d changes are undone, that of %.200r first", self.path, len(undone), undone[0])
            self.data_version.next_version(self._clock.time_ms())


def encode_file(table: RemotingSerializable) -> bytes:
    """A table as fastjson pretty-prints it: TABs, fields by alphabet, integer keys without quotes."""
    return fastjson.dumps(table, indent="\t")


class _Submitted(NamedTuple):
    """A table to be written, and the future of that write."""

    manager: AnyConfigManager
    settled: Settled


class ConfigPersistService:
    """Writes changed tables, one after the other; changes that come while one is written make one further write.

    A table that the disk refuses is named in the log once and tried again until it is written.

    Args:
        file_system: the disk.
    """

    def __init__(self, file_system: FileSystem = LOCAL) -> None:
        self._file_system = file_system
        # What was told last of each table that could not be written, until it is.
        self._told: dict[Path, str] = {}
        self._changed: dict[Path, _Submitted] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks = TaskOwner("ConfigPersistService")
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, manager: AnyConfigManager) -> Settled:
        """Schedule a write of a table; cheap, and callable before ``start``.

        Returns:
            The future of the write that will have the table as it is now. It is shared: wait for it, never cancel it.
        """
        self._idle.clear()
        self._wake.set()
        return self._enqueue(manager).settled

    def _enqueue(self, manager: AnyConfigManager) -> _Submitted:
        submitted = self._changed.get(manager.path)
        if submitted is None:
            submitted = _Submitted(manager, asyncio.get_running_loop().create_future())
            self._changed[manager.path] = submitted
        return submitted

    async def start(self) -> None:
        """Start writing."""
        self._executor = ThreadPoolExecutor(1, "ConfigPersistService")
        self._tasks.forever(self._run, "run")

    async def drain(self) -> Collection[Path]:
        """Wait until all that was submitted before is on disk, or its failure in the log; gives what is not on disk."""
        await self._idle.wait()
        return {*self._changed, *self._told}

    async def stop(self) -> None:
        """Write what is still to be written and end the thread."""
        await self._tasks.stop()
        if self._executor is not None:
            await self._write_changed()
            for path, submitted in self._changed.items():
                log.error("%s lacks its last changes: it could not be written before the stop", path)
                _settle(submitted.settled, f"{path} could not be written before the broker stopped")
            self._executor.shutdown()
            self._executor = None
        await self._tasks.stop()
        self._idle.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._write_changed()
            if self._wake.is_set():
                continue
            self._idle.set()
            if self._changed:  # these failed: the disk may have room again after a while
                await self._pause()

    async def _pause(self) -> None:
        """Wait until failed tables are due again, or another change comes: its request waits for the answer."""
        try:
            async with asyncio.timeout(RETRY_S):
                await self._wake.wait()
        except TimeoutError:
            self._wake.set()

    async def _write_changed(self) -> None:
        for path in list(self._changed):
            await self._write(path, self._changed.pop(path))

    async def _write(self, path: Path, submitted: _Submitted) -> None:
        manager = submitted.manager
        manager.begin_write()
        try:
            encode = manager.encoder()
        except Exception as error:  # noqa: BLE001 - told; whatever it is, the other tables are still to be written
            text = f"cannot be encoded: {error}"
            self._refused(path, submitted, text, f"{text}; it is tried again with its next change", error)
            return
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._executor, self._replace, path, encode)
        except asyncio.CancelledError:  # at stop: the thread goes on with this write, and is given it once more
            self._enqueue(manager).settled.add_done_callback(lambda again: _settle(submitted.settled, again.result()))
            raise
        except Exception as error:  # noqa: BLE001 - told, an unforeseen one with its trace; the table is tried again
            self._enqueue(manager)
            cause, unforeseen = (error.strerror, None) if isinstance(error, OSError) else (repr(error), error)
            text = f"cannot be written: {cause}"
            self._refused(path, submitted, text, f"{text}; it is tried each {RETRY_S:g} s", unforeseen)
        else:
            if self._told.pop(path, ""):
                log.warning("%s is written again", path)
            self._settle_after(submitted.settled, manager.written())

    def _replace(self, path: Path, encode: Callable[[], bytes]) -> None:
        replace_contents(path, encode(), self._file_system)

    def _settle_after(self, settled: Settled, waits: Sequence[asyncio.Future[None]]) -> None:
        if waits:
            self._tasks.start(_settle_later(settled, waits), "settle")
        else:
            _settle(settled, "")

    def _refused(
        self, path: Path, submitted: _Submitted, reason: str, text: str, error: Exception | None = None
    ) -> None:
        if self._told.get(path) != text:
            self._told[path] = text
            log.error("%s %s", path, text, exc_info=error)
        submitted.manager.refused()
        _settle(submitted.settled, f"{path} {reason}")


async def _settle_later(settled: Settled, waits: Sequence[asyncio.Future[None]]) -> None:
    try:
        await asyncio.wait(waits)
    finally:
        _settle(settled, "")


def _settle(settled: Settled, reason: str) -> None:
    if not settled.done():
        settled.set_result(reason)
