"""A store that copies the log of one master, is cut, and goes on with the log of another; killed at any write."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.store.dispatch.message_arriving_listener import NoListener
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.replica_log import ReplicaLog
from tests.support.fakes import FakeClock
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
    """The copy goes on with another log."""

    log: bytes


@dataclass
class PromisedLog:
    """The logs that the copy may have a part of, and how much of either it has for certain."""

    logs: tuple[bytes, ...] = ()
    kept: int = 0
    synced: int = 0

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


class ReplicaCrashScript(RecordedScript[PromisedLog]):
    """Copies the one log in parts, cuts it, and copies the other."""

    def __init__(self, root: Path, flush_disk_type: str, seed: int) -> None:
        super().__init__(root, flush_disk_type, seed)
        self._settings = {"flush_disk_type": flush_disk_type, "mapped_file_size_commit_log": 16384}
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
            found = log_bytes(store)
            logs = promised.logs or (b"",)
            assert len(found) >= promised.kept, f"{promised.kept} bytes were on disk"
            assert any(log.startswith(found[: promised.kept]) for log in logs), "bytes that were on disk are others now"
            assert not store.recovery_report.damaged_files
            assert any(log.startswith(found) for log in logs), "bytes of no master"
            for topic, queue_id in QUEUES:
                offsets = [one.queue_offset for one in read_queue(store, topic, queue_id)]
                assert offsets == list(range(store.queues.max_offset_in_queue(topic, queue_id)))
            assert self._queued(store) == _records(found)
        finally:
            await store.stop()

    @staticmethod
    def _queued(store: MessageStore) -> dict[int, bytes]:
        index = store.index_service
        assert index
        index.flush()
        found = {}
        for topic, queue_id in QUEUES:
            for one in read_queue(store, topic, queue_id):
                found[one.commit_log_offset] = one.body
                key = one.properties["UNIQ_KEY"]
                assert one.commit_log_offset in hits(index.search(topic, key, 0, ALWAYS)), f"{key} is not indexed"
        return found


def _records(log: bytes) -> dict[int, bytes]:
    """Return the bodies of all messages of a log by their offsets."""
    found, at = {}, 0
    while at < len(log):
        size = int.from_bytes(log[at : at + 4], "big")
        if log[at + 4 : at + 8] != b"\xcb\xd4\x31\x94":
            found[at] = decode_record(log[at : at + size]).body
        at += size
    return found


async def two_logs(folder: Path, cut_at: int) -> tuple[bytes, bytes, int]:
    """Return two logs that are alike up to an offset, at which a record begins, and that offset."""
    settings: dict[str, Any] = {"mapped_file_size_commit_log": 16384}
    one, other = (make_store(folder / name, FakeClock(), **settings) for name in ("one", "other"))
    await one.start()
    fill(one, "a", 24)
    first = log_bytes(one)
    cut = sorted(_records(first))[cut_at]
    await other.start()
    copy = other.make_replica_log()
    await copy.start()
    copy.append(0, first[:cut])
    await copy.stop()
    fill(other, "b", 12)
    second = log_bytes(other)
    await one.stop()
    await other.stop()
    return first, second, cut
