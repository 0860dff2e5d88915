"""A store that copies the log of one master, is cut, and goes on with the log of another; killed at any write."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.store.dispatch.commit_log_dispatcher import NoListener
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.replica_log import ReplicaLog
from tests.support.fakes import FakeClock
from tests.support.log_messages import messages_of
from tests.support.recorded_script import Operation, RecordedScript
from tests.support.recording_file_system import Loss
from tests.support.replicas import fill, log_bytes
from tests.support.slow_index import hits
from tests.support.stores import ALWAYS, V4_HOST, make_store, read_queue, store_config
from tests.support.waiting import until

QUEUES = [("Topic", 0), ("Topic", 1), ("Other", 0)]


class Synced(NamedTuple):
    """A log, and up to where the copy has it on disk."""

    log: bytes
    end: int


class Cutting(NamedTuple):
    """The copy is being cut at an offset."""

    offset: int


class Following(NamedTuple):
    """The copy continues with another log."""

    log: bytes


class Cleaning(NamedTuple):
    """Files before an offset may be removed from the copy."""

    begin: int


@dataclass
class PromisedLog:
    """The logs that the copy may have a part of, up to where it has either for certain, and its latest begin."""

    logs: tuple[bytes, ...] = ()
    kept: int = 0
    synced: int = 0
    begin: int = 0

    def take(self, mark: object) -> None:
        """Apply one mark."""
        match mark:
            case Following(log):
                self.logs = (*self.logs[-1:], log)
                self.kept = self.synced
            case Synced(log, end):
                self.logs, self.kept, self.synced = (log,), end, end
            case Cutting(offset):
                self.kept = self.synced = min(self.synced, offset)
            case Cleaning(begin):
                self.begin = max(self.begin, begin)


class ReplicaCrashScript(RecordedScript[PromisedLog]):
    """Copies the one log in parts, cuts it, and copies the other."""

    def __init__(self, root: Path, flush_disk_type: str, seed: int, **settings: object) -> None:
        super().__init__(root, flush_disk_type, seed)
        self._settings = {"flush_disk_type": flush_disk_type, "mapped_file_size_commit_log": 16384, **settings}
        self._store = self._new_store(root, self.file_system)
        self._copy: ReplicaLog

    @property
    def _running(self) -> MessageStore:
        return self._store

    def _weighted(self) -> list[tuple[Operation, int]]:
        return []

    def _new_store(self, root: Path, file_system: FileSystem) -> MessageStore:
        config = store_config(root / "store", **self._settings)
        return MessageStore(config, V4_HOST, NoListener(), self._clock, file_system)

    async def _start(self) -> None:
        await self._store.start()
        self._copy = self._store.make_replica_log()
        await self._copy.start()

    async def stop(self) -> None:
        """Stop, and have all on disk."""
        await self._copy.stop()
        await self._store.stop()

    async def follow(self, log: bytes) -> None:
        """Copy a log to its end in parts, some of which are synced."""
        self.file_system.mark(Following(log))
        copy = self._copy
        while copy.max_offset < len(log):
            end = copy.append(
                copy.max_offset, log[copy.max_offset : copy.max_offset + self._chance.randint(5000, 20000)]
            )
            await self._settle()
            if self._chance.random() < 0.5:
                await self._sync(log)
            if self._chance.random() < 0.5 or end == len(log):
                await self._all_dispatched()
            if self._chance.random() < 0.5:
                await self._flush_queues()

    async def _sync(self, log: bytes) -> None:
        end = self._copy.max_offset
        assert (await self._store.flusher.wait_flushed(end)).reason == ""
        self.file_system.mark(Synced(log, end))

    async def _all_dispatched(self) -> None:
        await until(lambda: self._store.appender.dispatched_offset >= self._copy._readable_end())

    async def cut(self, offset: int) -> None:
        """Cut the copy."""
        self.file_system.mark(Cutting(offset))
        await self._copy.truncate(offset)
        await self._settle()

    async def check(self, root: Path, promised: PromisedLog, loss: Loss, number: int = 0) -> None:
        """Open what a crash left: the log is part of one of the logs, queues and index have just its messages."""
        store = self._new_store(root, LOCAL)
        await store.start()
        try:
            found, begin = log_bytes(store), store.commit_log.min_offset
            logs = promised.logs or (b"",)
            assert begin <= promised.begin
            assert store.commit_log.max_offset >= promised.kept, f"{promised.kept} bytes were on disk"
            kept = found[: max(promised.kept - begin, 0)]
            assert not kept or any(log.startswith(kept, begin) for log in logs), "bytes on disk are others now"
            assert not store.recovery_report.damaged_files
            assert not found or any(log.startswith(found, begin) for log in logs), "bytes of no master"
            self._check_queues(store)
            if promised.logs:
                await self._follow_again(store, promised.logs[-1])
        finally:
            await store.stop()

    def _check_queues(self, store: MessageStore) -> None:
        """Check that queues and index have just the messages of the log."""
        begins = {queue: store.queues.min_offset_in_queue(*queue) for queue in QUEUES}
        for queue, begin in begins.items():
            offsets = [one.queue_offset for one in read_queue(store, *queue, begin)]
            assert offsets == list(range(begin, store.queues.max_offset_in_queue(*queue)))
        assert self._queued(store, begins) == _records(log_bytes(store), store.commit_log.min_offset)

    async def _follow_again(self, store: MessageStore, log: bytes) -> None:
        """Cut what a crash left where a log continued differently, and copy that log to its end."""
        begin, end = store.commit_log.min_offset, store.commit_log.max_offset
        places = sorted([begin, *_ends_of_records(log[:end], begin)])
        common = max(at for at in places if log.startswith(log_bytes(store)[: at - begin], begin))
        copy = store.make_replica_log()
        await copy.start()
        await copy.truncate(common)
        copy.append(common, log[common:])
        await until(lambda: store.flusher.error or store.appender.dispatched_offset >= copy._readable_end())
        await copy.stop()
        assert log_bytes(store) == log[begin:]
        self._check_queues(store)

    @staticmethod
    def _queued(store: MessageStore, begins: dict[tuple[str, int], int]) -> dict[int, bytes]:
        index = store.index_service
        assert index
        index.flush()
        found = {}
        for (topic, queue_id), begin in begins.items():
            for one in read_queue(store, topic, queue_id, begin):
                found[one.commit_log_offset] = one.body
                key = one.properties["UNIQ_KEY"]
                assert one.commit_log_offset in hits(index.search(topic, key, 0, ALWAYS)), f"{key} is not indexed"
        return found


def _records(log: bytes, begin: int = 0) -> dict[int, bytes]:
    """Return the bodies of all messages of a log by their offsets."""
    return {offset: one.body for offset, one in messages_of(log, begin).items()}


def _ends_of_records(log: bytes, begin: int) -> Iterator[int]:
    """Return the ends of whole records between an offset and the end of a log."""
    while begin < len(log) and (begin := begin + int.from_bytes(log[begin : begin + 4], "big")) <= len(log):
        yield begin


async def two_logs(folder: Path, cut_at: int) -> tuple[bytes, bytes, int]:
    """Return two logs that are alike up to an offset, at which a record begins, and that offset."""
    first, second = await some_logs(folder, [cut_at])
    return first, second, sorted(_records(first))[cut_at]


async def some_logs(folder: Path, cuts: Sequence[int]) -> list[bytes]:
    """Return logs each of which is like the one before up to a message, given by its number, at most the last."""
    logs = [b""]
    for number, cut_at in enumerate([0, *cuts]):
        store = make_store(folder / f"log{number}", FakeClock(), mapped_file_size_commit_log=16384)
        await store.start()
        if logs[-1]:
            copy = store.make_replica_log()
            await copy.start()
            places = sorted(_records(logs[-1]))
            copy.append(0, logs[-1][: places[min(cut_at, len(places) - 1)]])
            await copy.stop()
        fill(store, "abcdefgh"[number], 12 if number else 24)
        logs.append(log_bytes(store))
        await store.stop()
    return logs[1:]
