"""Queries by key, time, offset and tags (DefaultMessageStore.queryMessage, getOffsetInQueueByTime).

They have a thread of their own, because a long chain of the index would delay pulls.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import ParamSpec, TypeVar

import msgspec

from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import StoreError
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.dispatch.commit_log_dispatcher import CommitLogDispatcher
from rocketbroker.store.index.index_service import AT_ONCE
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_estimate import TaggedRange, estimate_message_count
from rocketbroker.store.read.queue_reader import QueueReader


class QueryMessageResult(msgspec.Struct):
    """Records, newest first, and the progress of the index: store time in ms and CommitLog offset."""

    records: list[bytes]
    index_last_update_timestamp: int
    index_last_update_physical_offset: int


P = ParamSpec("P")
T = TypeVar("T")

# Most bytes of records in an answer; a frame has 16 MiB.
_QUERY_BYTES = 12 * 1024 * 1024
# Index entries that a query examines in one turn, about 50 ms.
ENTRIES_AT_A_TIME = 20_000
# Time that an estimate takes beside its sample, as a number of entries.
_RANGE_COST = 1_000


class MessageQueries:
    """Answers queries from the index, the queues and the log."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        reader: QueueReader,
        dispatcher: CommitLogDispatcher,
        config: MessageStoreConfig,
    ) -> None:
        self._commit_log = commit_log
        self._queues = queues
        self._reader = reader
        self._dispatcher = dispatcher
        self._config = config
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="QueryMessage")

    async def offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: str = "LOWER"
    ) -> int:
        """Find the first message at or after a time (``LOWER``), or the last not after it (``UPPER``)."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        try:
            found = await self._run(self._reader.offset_by_time, queue, timestamp_ms, boundary == "UPPER")
        except ValueError:
            if self._queues.find(topic, queue_id) is queue:
                raise
            return 0  # its topic was deleted meanwhile, and the files are closed
        return found if self._queues.find(topic, queue_id) is queue else 0

    def message_store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time in ms of a message of a queue, -1 when the queue does not hold it."""
        queue = self._queues.find(topic, queue_id)
        return self._reader.store_timestamp(queue, queue_offset) if queue else -1

    async def store_timestamps(self, places: Sequence[tuple[str, int, int]]) -> list[int]:
        """Return the store times in ms of messages by topic, queue and offset, -1 for those that are gone."""
        return await self._run(self._store_timestamps, places)

    def _store_timestamps(self, places: Sequence[tuple[str, int, int]]) -> list[int]:
        """Return store times (blocks)."""
        times = []
        for place in places:
            try:
                times.append(self.message_store_timestamp(*place))
            except ValueError:
                times.append(-1)  # its topic was deleted meanwhile, and the files are closed
        return times

    async def estimate_message_counts(self, ranges: Sequence[TaggedRange]) -> list[int]:
        """Return about how many messages of each range match, as ``estimate_message_count`` does.

        Other queries run in between.
        """
        counts: list[int] = []
        some: list[TaggedRange] = []
        cost = 0
        for each in ranges:
            some.append(each)
            cost += _RANGE_COST + min(each.end - each.begin, self._config.max_consume_queue_scan)
            if cost >= ENTRIES_AT_A_TIME:
                counts += await self._run(self._estimate_counts, some)
                some, cost = [], 0
        return counts + (await self._run(self._estimate_counts, some) if some else [])

    def _estimate_counts(self, ranges: Sequence[TaggedRange]) -> list[int]:
        """Return numbers of messages (blocks)."""
        counts = []
        for wanted in ranges:
            queue = self._queues.find(wanted.topic, wanted.queue_id)
            try:
                counts.append(estimate_message_count(queue, wanted, self._config) if queue else 0)
            except ValueError:
                counts.append(0)  # its topic was deleted meanwhile, and the files are closed
        return counts

    def earliest_message_time(self, topic: str, queue_id: int) -> int:
        """Return the store time in ms of the first message of a queue, -1 when it has none."""
        return self.message_store_timestamp(topic, queue_id, self._queues.min_offset_in_queue(topic, queue_id))

    async def read_message(self, physical_offset: int) -> bytes | None:
        """Read the record at a CommitLog offset, ``None`` if no record begins there."""
        return await self._run(self._record, physical_offset)

    def queued_message(self, physical_offset: int) -> bytes | None:
        """Read the record at an offset that a client named, ``None`` if no queue leads to one (blocks).

        A body may contain bytes that look like a record, its own offset included.
        """
        return self._if_queued(physical_offset, self._record(physical_offset))

    async def read_queued_message(self, physical_offset: int) -> bytes | None:
        """Read a record as ``queued_message``, without blocking."""
        return self._if_queued(physical_offset, await self.read_message(physical_offset))

    def _record(self, physical_offset: int) -> bytes | None:
        """Return the record at a CommitLog offset, ``None`` if none begins there (blocks).

        One that is longer than ``maxMessageSize`` allows may have been stored before that was lowered. It is read only
        if a queue leads to it: a forged one could be as long as a file.
        """
        log = self._commit_log
        record = log.record(physical_offset)
        if record is not None or (found := log.long_record(physical_offset)) is None:
            return record
        queue = self._queues.find(found.topic, found.queue_id)
        try:
            entry = queue.entry(found.queue_offset) if queue else None
        except ValueError:
            return None  # its topic was deleted meanwhile, and the files are closed
        if entry is None or entry[:2] != (physical_offset, found.size):
            return None
        return log.record(physical_offset, found.size)

    def _if_queued(self, physical_offset: int, record: bytes | None) -> bytes | None:
        if record is None:
            return None
        message = decode_record(record, read_body=False)
        queue = self._queues.find(message.topic, message.queue_id)
        entry = queue.entry(message.queue_offset) if queue else None
        return record if entry is not None and entry[:2] == (physical_offset, len(record)) else None

    async def query_message(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, index_type: str | None = None
    ) -> QueryMessageResult:
        """Find messages by key or unique id (``K``, ``U``, ``None``) or by tag (``T``), newest first.

        The result has as many messages as one frame can carry, at least one.

        Raises:
            StoreError: The query would examine too many entries of the index.
        """
        index_service = self._dispatcher.index_service
        if index_service is None:
            return QueryMessageResult([], 0, 0)
        # The keys of this moment, a part in each turn of the event loop, then those that came meanwhile.
        for _ in range(index_service.waiting // AT_ONCE):
            self._dispatcher.flush_index(1)
            await asyncio.sleep(0)
        self._dispatcher.flush_index()
        limit = min(max_num, self._config.max_msgs_num_batch)
        last_update = index_service.last_update
        offsets = await self._find(index_service.search(topic, key, begin_ms, end_ms, tag=index_type == "T"), limit)
        return QueryMessageResult(await self._run(self._records, offsets), *last_update)

    async def _find(self, search: Iterator[int | None], limit: int) -> list[int]:
        """Collect the first offsets of a search; other queries run during a long one."""
        found: list[int] = []
        for _ in range(0, self._config.max_index_entries_per_query, ENTRIES_AT_A_TIME):
            if await self._run(_advance, search, found, limit):
                return found
        raise StoreError(
            f"maxIndexEntriesPerQuery: {len(found):,} messages were found in "
            f"{self._config.max_index_entries_per_query:,} entries of the index, and there are more; ask "
            "for fewer messages or a later time, or raise maxIndexEntriesPerQuery"
        )

    def _records(self, offsets: Sequence[int]) -> list[bytes]:
        """Read the records at CommitLog offsets, as many as one frame can carry."""
        records: list[bytes] = []
        room = _QUERY_BYTES
        for offset in offsets:
            record = self._record(offset)
            if record is None:
                continue
            room -= len(record)
            if records and room < 0:
                break
            records.append(record)
        return records

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Let running queries end with their results so far, and end the thread (blocks)."""
        if self._dispatcher.index_service is not None:
            self._dispatcher.index_service.give_up_queries()
        self._executor.shutdown()


def _advance(search: Iterator[int | None], found: list[int], limit: int) -> bool:
    """Continue a search; return true if it has ended (blocks)."""
    looked_at = 0
    for offset in islice(search, ENTRIES_AT_A_TIME):
        looked_at += 1
        if offset is not None:
            found.append(offset)
            if len(found) >= limit:
                return True
    return looked_at < ENTRIES_AT_A_TIME
