"""Operations that a seed chooses, over a recording file system: what the scripts of crash tests have in common."""

import asyncio
import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.file_system import FileSystem
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock
from tests.support.recording_file_system import Event, Loss, RecordingFileSystem


class Promises(Protocol):
    """Promises of the marks up to a point."""

    def take(self, mark: object) -> None:
        """Apply one mark."""


PromisedT = TypeVar("PromisedT", bound=Promises)
Operation = Callable[[], Awaitable[object]]


class OnDisk(NamedTuple):
    """All that was put before is on disk; under SYNC_FLUSH it is acknowledged by now, and not earlier."""


class RecordedScript(ABC, Generic[PromisedT]):
    """Runs the operations; ``journal`` is what they did.

    Args:
        root: an empty folder.
        flush_disk_type: SYNC_FLUSH or ASYNC_FLUSH.
        seed: chooses the operations.
    """

    def __init__(self, root: Path, flush_disk_type: str, seed: int) -> None:
        self.file_system = RecordingFileSystem(root)
        self.seed = seed
        self._root = root
        self._flush_disk_type = flush_disk_type
        self._chance = random.Random(seed)
        self._clock = FakeClock()
        self._numbers = itertools.count(1)

    def __str__(self) -> str:
        return f"{self._flush_disk_type}, seed {self.seed}"

    @property
    def journal(self) -> list[Event]:
        """The writes and the marks, in order."""
        return self.file_system.journal

    async def run(self, operations: int) -> None:
        """Start and do a number of operations."""
        await self._start()
        for _ in range(operations):
            (operation,) = self._chance.choices(*zip(*self._weighted(), strict=True))
            await operation()
            await self._settle()

    @abstractmethod
    async def stop(self) -> None:
        """Stop, and have all on disk."""

    @abstractmethod
    async def check(self, root: Path, promised: PromisedT, loss: Loss, number: int) -> None:
        """Start on what a crash left and compare it with the promises; ``number`` identifies the crash."""

    @property
    @abstractmethod
    def _running(self) -> MessageStore:
        """The store that the operations use."""

    @abstractmethod
    def _weighted(self) -> list[tuple[Operation, int]]:
        """Return the operations, and how often each is chosen."""

    @abstractmethod
    async def _start(self) -> None:
        """Start on the files on disk."""

    async def _settle(self) -> None:
        """Let the thread that makes files ahead finish, so that a seed gives one journal."""
        await asyncio.to_thread(self._running.allocate_service.settle)

    async def _restart(self) -> None:
        await self.stop()
        await self._start()

    def _body(self, number: int) -> bytes:
        """Begins with the number, and is short or long."""
        return b"%d " % number + bytes(self._chance.choice([0, 100, 2000]))

    async def _flush_queues(self) -> None:
        self._running.queue_flusher.flush()

    async def _flush_index(self) -> None:
        self._running.dispatcher.flush_index()


async def nothing_to_wait_for() -> Collection[Path]:
    """Return a table writer that writes each table where it is submitted."""
    return ()


def consumer_offsets(config: MessageStoreConfig, clock: Clock, file_system: FileSystem) -> ConsumerOffsetManager:
    """Return a table of offsets, not loaded, that is written where it is submitted."""
    return ConsumerOffsetManager(
        config.config_dir / "consumerOffset.json",
        clock,
        lambda table: replace_contents(table.path, table.encode(), file_system),
    )
