"""Tables that live in ``config/*.json`` (org.apache.rocketmq.common.ConfigManager).

The event loop owns each table. ``persist`` marks it as changed; ``ConfigPersistService`` writes changed tables on a
thread of its own (``replace_contents``), so that at any moment the file or its ``.bak`` is whole. The text of a long
table is encoded there as well. Code that changes a table waits for the future of that write before it acknowledges
the change; changes whose write fails are undone in memory.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from rocketbroker.broker.persist.durable_progress import TableChanges
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion, RemotingSerializable
from rocketbroker.codec.storefile.config_tables import decode_table
from rocketbroker.common.atomic_file import load_table, replace_contents
from rocketbroker.common.clock import Clock
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.store.commitlog.commit_log import CommitLog

log = logging.getLogger(__name__)

V = TypeVar("V", bound=msgspec.Struct)


# Text of ``config/*.json`` built from pieces, where encoding the whole table each time would take too long.
#
# The shape is that of ``fastjson.dumps(table, indent=TAB)``:
#
#     {
#         "field":{
#             "name":value,
#             ...
#         },
#         ...
#     }


def text_of(value: str) -> str:
    """Return a value as a JSON string."""
    return msgspec.json.encode(value).decode()


def struct_text(value: msgspec.Struct, depth: int) -> str:
    """Return the text of a struct, indented for ``depth`` levels."""
    # Every line break is layout: in strings they are escaped.
    return fastjson.dumps(value, indent="\t").decode().replace("\n", "\n" + "\t" * depth)


def object_text(lines: Iterable[str], depth: int) -> str:
    """Return the text of an object whose fields are ``lines``, already indented."""
    text = ",\n".join(lines)
    closing = "\t" * depth + "}"
    return f"{{\n{text}\n{closing}" if text else "{}"


def file_text(**fields: str) -> bytes:
    """Return the content of a file: an object with these fields in alphabetical order."""
    return object_text((f'\t"{name}":{text}' for name, text in sorted(fields.items())), 0).encode()


class EntryTexts(Generic[V]):
    """Cached texts of table entries, renewed when an entry is replaced; entries never change in place."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[V, str]] = {}

    def object_text(self, table: Mapping[str, V]) -> str:
        """Return the text of ``table`` as a field of a file."""
        known, texts = self._texts, {}
        for name, value in table.items():
            found = known.get(name)
            if found is None or found[0] is not value:
                found = value, f"\t\t{text_of(name)}:{struct_text(value, 2)}"
            texts[name] = found
        self._texts = texts
        return object_text([text for _, text in texts.values()], 1)


RETRY_S = 5.0

F = TypeVar("F", bound=RemotingSerializable)

# Result of a write: the reason why it failed, "" once the change is on disk and its listeners are done.
Settled: TypeAlias = asyncio.Future[str]
# ``ConfigPersistService.submit``.
OnPersist: TypeAlias = Callable[["AnyConfigManager"], Settled | None]


class ConfigManager(ABC, Generic[F]):
    """One table and its file, whose contents decode to an ``F``.

    Args:
        path: the file; its folder is created by the first write.
        on_persist: schedules a write of the table (``ConfigPersistService.submit``); ``None`` keeps it in memory only.
    """

    #: RocketMQ's name of the file, and the struct of its content; a table in another form overrides ``parse``.
    file_name: str
    contents: type[F]

    def __init__(self, path: Path, on_persist: OnPersist | None = None) -> None:
        self.path = path
        self._on_persist = on_persist
        # True if ``load`` found a file or its backup.
        self.found = False

    def encode(self) -> bytes:
        """Return the content of the file for the table; this or ``encoder`` is overridden."""
        return self.encoder()()

    def encoder(self) -> Callable[[], bytes]:
        """Copy the table as it is; return a function that encodes the copy, for another thread.

        A table that may be long is encoded there.
        """
        data = self.encode()
        return lambda: data

    def parse(self, data: bytes) -> F:
        """Parse the content of a file.

        Raises:
            CodecError: The content is not such a table.
        """
        return decode_table(self.file_name, data, self.contents)

    @abstractmethod
    def count(self, file: F) -> int:
        """Return the number of entries in the table of a file."""

    @abstractmethod
    def take(self, file: F) -> None:
        """Replace or fill the table from a parsed file."""

    def decode(self, data: bytes) -> None:
        """Replace or fill the table from a file's content; leave it unchanged on an error.

        Raises:
            CodecError: The content is not such a table.
        """
        self.take(self.parse(data))

    def persist(self) -> Settled | None:
        """Schedule a write of the table; return its future, ``None`` for a table in memory only."""
        if self._on_persist is not None:
            return self._on_persist(self)
        self.begin_write()
        self.written()
        return None

    def begin_write(self) -> None:
        """Note what a write covers; called in one step with ``encoder``."""

    def written(self) -> Sequence[asyncio.Future[None]]:
        """Note that the write is on disk; return futures that its callers must wait for as well."""
        return ()

    def refused(self) -> None:
        """Undo the changes that a failed write covers, where possible."""

    def load(self, file_system: FileSystem = LOCAL) -> bool:
        """Read the file, else its ``.bak``, as ``load_table`` does.

        Args:
            file_system: the disk.

        Returns:
            True if there was a file.

        Raises:
            ConfigError: There are files but none is readable, so that starting would lose the table.
        """
        file = load_table(self.path, self.parse, self.count, file_system)
        self.found = file is not None
        if file is not None:
            self.take(file)
        return self.found


AnyConfigManager: TypeAlias = ConfigManager[Any]


class VersionedConfigManager(ConfigManager[F]):
    """A table with a data version, by which copies are compared; each change raises it, and each undone change."""

    def __init__(self, path: Path, clock: Clock, on_persist: OnPersist | None = None) -> None:
        super().__init__(path, on_persist)
        self._clock = clock
        self.data_version = DataVersion(timestamp=clock.time_ms())
        self._unsettled: dict[str, Settled] = {}

    @abstractmethod
    def _tables(self) -> Iterable[TableChanges[Any]]:
        """Return the changes of each table in the file."""

    def changed(self, name: str = "") -> Settled | None:
        """Raise the version and schedule a write of the table; return its future.

        Args:
            name: the changed entry, pending until the change is on disk or undone.
        """
        self.data_version.next_version(self._clock.time_ms())
        settled = self.persist()
        if name and settled is not None:
            self._unsettled[name] = settled
            settled.add_done_callback(partial(self._settle, name))
        return settled

    def follow_version(self, version: DataVersion, *, changed: bool) -> None:
        """Take over the version of a master's table after its entries, and schedule a write if anything differs."""
        if changed or version != self.data_version:
            self.data_version = version.copy()
            self.persist()

    def settled(self, name: str) -> Settled | None:
        """Return the future of an entry's last change; ``None`` if no write is pending."""
        return self._unsettled.get(name)

    def _settle(self, name: str, settled: Settled) -> None:
        if self._unsettled.get(name) is settled:
            del self._unsettled[name]

    def begin_write(self) -> None:
        """Mark the changes of all tables that the write covers."""
        for table in self._tables():
            table.begin_write()

    def written(self) -> Sequence[asyncio.Future[None]]:
        """Settle the changes that are on disk now, in all tables."""
        for table in self._tables():
            table.written()
        return ()

    def refused(self) -> None:
        """Undo the changes that a failed write covers; raise the version, as others may have seen them."""
        undone = [name for table in self._tables() for name in table.refused()]
        if undone:
            log.warning("%s: %d changes were undone, the first one of %.200r", self.path, len(undone), undone[0])
            self.data_version.next_version(self._clock.time_ms())


def encode_file(table: RemotingSerializable) -> bytes:
    """Return a table as fastjson pretty-prints it: TABs, fields in alphabetical order, integer keys without quotes."""
    return fastjson.dumps(table, indent="\t")


class _Submitted(NamedTuple):
    """A table to write, and the future of that write."""

    manager: AnyConfigManager
    settled: Settled


class ConfigPersistService:
    """Writes changed tables, one at a time; changes during a write are coalesced into one more.

    A failed write is logged once and retried until it succeeds.
    """

    def __init__(self, file_system: FileSystem = LOCAL) -> None:
        self._file_system = file_system
        # Last log text for each table that could not be written, until it is.
        self._logged: dict[Path, str] = {}
        self._changed: dict[Path, _Submitted] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks = TaskOwner("ConfigPersistService")
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, manager: AnyConfigManager) -> Settled:
        """Schedule a write of a table; cheap, and allowed before ``start``.

        Returns:
            The future of the write that will cover the current table. It is shared: wait for it, never cancel it.
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
        self._executor = ThreadPoolExecutor(1, "ConfigPersistService")
        self._tasks.forever(self._run, "run")

    async def drain(self) -> Collection[Path]:
        """Wait until submitted tables are written or have failed; return the paths that are not on disk."""
        await self._idle.wait()
        return {*self._changed, *self._logged}

    async def stop(self) -> None:
        """Write all pending tables and end the thread."""
        await self._tasks.stop()
        if self._executor is not None:
            await self._write_changed()
            for path, submitted in self._changed.items():
                log.error("%s lacks the last changes: it could not be written before the broker stopped", path)
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
            if self._changed:
                # These failed, and are due again after a while, or with another change, whose request waits.
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
        except Exception as error:  # noqa: BLE001 - logged; the other tables must still be written
            text = f"cannot be encoded: {error}"
            self._refused(path, submitted, text, f"{text}; the next change retries it", error)
            return
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._executor, lambda: replace_contents(path, encode(), self._file_system))
        except asyncio.CancelledError:  # at stop: the thread continues this write, and gets it once more
            self._enqueue(manager).settled.add_done_callback(lambda again: _settle(submitted.settled, again.result()))
            raise
        except Exception as error:  # noqa: BLE001 - logged, an unforeseen one with its trace; the write is retried
            self._enqueue(manager)
            cause, unforeseen = (error.strerror, None) if isinstance(error, OSError) else (repr(error), error)
            text = f"cannot be written: {cause}"
            self._refused(path, submitted, text, f"{text}; retrying every {RETRY_S:g} s", unforeseen)
        else:
            if self._logged.pop(path, ""):
                log.warning("%s is written again", path)
            if waits := manager.written():
                self._tasks.start(_settle_later(submitted.settled, waits), "settle")
            else:
                _settle(submitted.settled, "")

    def _refused(
        self, path: Path, submitted: _Submitted, reason: str, text: str, error: Exception | None = None
    ) -> None:
        if self._logged.get(path) != text:
            self._logged[path] = text
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


# Report of what a store held and this broker does not serve: lost tables, and popped messages.
#
# The first start writes each table once, so a file that is missing later was lost or removed. RocketMQ silently starts
# such a table empty.


class MissingTableReport:
    """Checks tables once, after the store was opened.

    Args:
        tables: the tables, loaded.
        commit_log: the log, recovered before this part starts.
    """

    def __init__(self, tables: Sequence[AnyConfigManager], commit_log: CommitLog) -> None:
        self._tables = tables
        self._commit_log = commit_log

    async def start(self) -> None:
        """Log tables without a file if the store has messages, and write them."""
        in_use = self._commit_log.max_offset > self._commit_log.min_offset
        for table in self._tables:
            if table.found:
                continue
            if in_use:
                log.warning(
                    "%s is missing and has no backup, although the store holds messages: its content is lost, and the "
                    "broker starts with the defaults; to restore it, stop the broker and put back a copy of the file",
                    table.path,
                )
            table.persist()

    async def stop(self) -> None:
        """Do nothing: this part only acts at the start."""
