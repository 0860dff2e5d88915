"""Consumed offsets: at the broker, or in a local file (org.apache.rocketmq.client.consumer.store)."""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from rocketbroker.client.core.errors import ClientStateError
from rocketbroker.client.core.options import checked
from rocketbroker.client.core.requests import FailureLog, QueueOffsets
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.offset import ResetOffsetBody
from rocketbroker.common.atomic_file import load_table, replace_contents
from rocketbroker.common.errors import RocketBrokerError

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Consumed offsets of one group: kept in memory, and persisted every few seconds."""

    offsets: dict[MessageQueue, int]

    def open(self) -> None:
        """Prepare for one consumer.

        Raises:
            ClientStateError: another consumer uses the store.
        """

    def close(self) -> None:
        """Release what ``open`` has taken."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the persisted offset of a queue, None if there is none.

        Raises:
            RocketBrokerError: the store cannot be read.
        """

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset of a queue."""

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Persist the offsets of some queues; log a failure and try again at the next call."""

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that is no longer consumed."""


# A commit may fail, come late, or be lost with the broker: the broker then has an older offset, and messages after it
# come twice. It must never have a newer one, which would skip messages. Therefore what is committed is the offset of a
# ``ProcessQueue`` alone, a queue that is given up is committed before it is forgotten, and one that was forgotten
# during its commit is not noted as persisted: if it comes back, its offset is read from the broker again.
class RemoteBrokerOffsetStore:
    """Offsets at the brokers, where all members of the group find them."""

    def __init__(self, group: str, queue_offsets: QueueOffsets) -> None:
        self._group = group
        self._queue_offsets = queue_offsets
        self._failures = FailureLog(log)
        self._persisted: dict[MessageQueue, int] = {}
        self.offsets: dict[MessageQueue, int] = {}

    def open(self) -> None:
        """Do nothing: members share the offsets at the brokers."""

    def close(self) -> None:
        """Do nothing."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Ask the broker of a queue for the group's offset."""
        offset = await self._queue_offsets.committed(self._group, queue)
        return None if offset is None or offset < 0 else offset

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset of a queue."""
        self.offsets[queue] = offset

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Commit changed offsets at the brokers."""
        await asyncio.gather(*map(self._commit, list(queues)))

    async def _commit(self, queue: MessageQueue) -> None:
        offset = self.offsets.get(queue)
        if offset is None or self._persisted.get(queue) == offset:
            return
        try:
            await self._queue_offsets.commit(self._group, queue, offset)
        except RocketBrokerError as error:
            self._failures.warning(
                "commit of offset %d of %s for group %s failed: %s", offset, queue, self._group, error
            )
        else:
            if queue in self.offsets:  # else it was removed meanwhile, and the next member may commit its own offset
                self._persisted[queue] = offset

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that is no longer consumed."""
        self.offsets.pop(queue, None)
        self._persisted.pop(queue, None)


# Files that consumers of this process have open. Each writes the whole file, so two would undo each other's offsets.
_open_files: set[Path] = set()


class LocalFileOffsetStore:
    """Offsets in a file of the Java client's format, for broadcasting consumers.

    Args:
        path: the file; written with a backup beside it.
    """

    @checked
    def __init__(self, path: Path) -> None:
        self.path = path
        self.offsets: dict[MessageQueue, int] = {}
        self._loaded: dict[MessageQueue, int] | None = None
        self._lock = asyncio.Lock()

    def open(self) -> None:
        """Reserve the file for one consumer of this process.

        Raises:
            ClientStateError: another consumer has the file.
        """
        path = self.path.absolute()
        if path in _open_files:
            raise ClientStateError(
                f"another consumer of this process keeps its offsets in {path}; give each one a file of its own by "
                "offset_store=LocalFileOffsetStore(path)"
            )
        _open_files.add(path)

    def close(self) -> None:
        """Release the file."""
        _open_files.discard(self.path.absolute())

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the offset in the file.

        Raises:
            ConfigError: neither the file nor its backup can be read.
        """
        return (await self._table()).get(queue)

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset of a queue."""
        self.offsets[queue] = offset

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Write the file if an offset has changed."""
        changed = {queue: self.offsets[queue] for queue in queues if queue in self.offsets}
        table = await self._table()
        async with self._lock:
            if all(table.get(queue) == offset for queue, offset in changed.items()):
                return
            data = ResetOffsetBody(table | changed).encode()
            try:
                await asyncio.to_thread(replace_contents, self.path, data)
            except OSError as error:
                log.warning("the offsets were not written to %s: %s; the next try follows", self.path, error)
            else:
                table.update(changed)

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue in memory; the file keeps it."""
        self.offsets.pop(queue, None)

    async def _table(self) -> dict[MessageQueue, int]:
        async with self._lock:
            if self._loaded is None:
                self._loaded = await asyncio.to_thread(load_table, self.path, _decode, len) or {}
            return self._loaded


def _decode(data: bytes) -> dict[MessageQueue, int]:
    return dict(ResetOffsetBody.decode(data).offset_table)
