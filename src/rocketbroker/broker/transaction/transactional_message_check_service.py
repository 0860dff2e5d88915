"""Checks of transactions that stay open (o.a.r.broker.transaction.TransactionalMessageCheckService).

Every ``transactionCheckInterval`` the open half messages are checked in order. One that is due is put back at the
end of its queue, checked once more, and a member of its producer group is asked; the answer is an END_TRANSACTION that
names the copy. So the queue moves on whatever the outcome of one transaction, and half messages outlive the files they
were first stored in.

Copies take ``transactionCheckBytesPerSecond`` of the log. Beyond that a half message stays where it is: its producer is
asked all the same, and how often is kept in memory until there is room for a copy.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from rocketbroker.broker.transaction.transactional_message_check_listener import TransactionalMessageCheckListener
from rocketbroker.broker.transaction.transactional_message_service import TransactionalMessageService
from rocketbroker.broker.transaction.transactional_message_util import (
    QUEUE_ID,
    check_times,
    checked_copy,
    immune_copy,
    immunity_ms,
    is_copy,
    transaction_key,
    with_check_times,
)
from rocketbroker.codec.message.message_const import PROPERTY_PRODUCER_GROUP
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.topic_validator import RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.common.byte_budget import ByteBudget
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.store.commitlog.put_message import (
    PERMANENT_FAILURES,
    MessageExtBrokerInner,
    PutMessageResult,
    PutMessageStatus,
)
from rocketbroker.store.flush.acknowledgement import Acknowledgement, Acknowledgements
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_queries import MessageQueries
from rocketbroker.store.recovery.store_lock import StoreLock

log = logging.getLogger(__name__)

_TICK_S = 0.1
_HOUR_MS = 3_600_000


class _InPlace(NamedTuple):
    """An open half message that there was no room to copy.

    Attributes:
        times: how often its producer group was asked; 0 while it is immune.
        born_timestamp: when it was born, in ms.
        immunity: for how long after that it is not asked for, in ms.
    """

    times: int
    born_timestamp: int
    immunity: int


class TransactionalMessageCheckService:
    """The task that checks, and the one that writes op messages and keeps the progress.

    Args:
        transactions: the open transactions.
        listener: asks producers.
        recover: finds the open transactions at the start.
        appender: makes the copies readable.
        queues: hold the half messages.
        queries: reads them.
        lock: stays marked when the next start has to look for commits.
        acknowledgements: say when a copy may be read.
        config: when a half message is due, and how often it is checked.
        store_config: says how long messages are kept at all.
        store_host: the broker's address as records hold it.
        clock: says what is due.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that a check depends on
        self,
        transactions: TransactionalMessageService,
        listener: TransactionalMessageCheckListener,
        recover: Callable[[], Awaitable[None]],
        appender: MessageAppender,
        queues: ConsumeQueueStore,
        queries: MessageQueries,
        lock: StoreLock,
        acknowledgements: Acknowledgements,
        *,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        store_host: bytes,
        clock: Clock,
    ) -> None:
        self._transactions = transactions
        self._listener = listener
        self._recover = recover
        self._appender = appender
        self._queues = queues
        self._queries = queries
        self._lock = lock
        self._acknowledgements = acknowledgements
        self._config = config
        self._store_config = store_config
        self._store_host = store_host
        self._clock = clock
        self._recovered = False
        self._last_check = 0.0
        self._copy_budget = ByteBudget(clock)
        self._in_place: dict[int, _InPlace] = {}
        # Producer groups that nobody was there of, and for how many transactions; told with each turn.
        self._absent: Counter[str | None] = Counter()
        self._tasks = TaskOwner("TransactionalMessageCheckService")

    async def start(self) -> None:
        """Find the open transactions and start to check them; the store and the consumer offsets are loaded by then."""
        if not self._recovered:
            # Once: afterwards transactions begin and end in memory, also while none is checked.
            await self._recover()
            self._recovered = True
        self._last_check = self._clock.monotonic()
        self._tasks.every(_TICK_S, self._transactions.tick, "op messages")
        self._tasks.every(_TICK_S, self._check_when_due, "check")

    async def stop(self) -> None:
        """Stop checking, and write op messages and progress."""
        await self._tasks.stop()
        if not await self._transactions.close():
            # As after a kill the next start has to look for commits that no op message tells of.
            self._lock.stays_marked = True

    async def _check_when_due(self) -> None:
        if (self._clock.monotonic() - self._last_check) * 1000 >= self._config.transaction_check_interval:
            try:
                await self.check()
            finally:
                self._last_check = self._clock.monotonic()

    async def check(self) -> None:
        """Check the half messages that are open now, up to the first that is not due yet."""
        queue = self._queues.find(RMQ_SYS_TRANS_HALF_TOPIC, QUEUE_ID)
        if queue is None:
            return
        half_offsets = self._transactions.half_offsets
        # What is put back comes after that, and is left to the next time.
        end = queue.max_offset
        half_offsets.skip_to(min(queue.min_offset, end))
        self._in_place = {offset: kept for offset, kept in self._in_place.items() if half_offsets.is_open(offset)}
        offset = half_offsets.position
        while (offset := half_offsets.first_open(offset)) < end and await self._check_next(queue, offset):
            offset += 1
            self._appender.dispatch()
        self._log_absent()

    def _log_absent(self) -> None:
        for group, count in self._absent.items():
            text = "no producer of group %s can be asked for %s open transactions: none is there, or all are slow"
            log.warning(text, group, count)
        self._absent.clear()

    async def _check_next(self, queue: ConsumeQueueInterface, offset: int) -> bool:
        """Deal with an open half message; false when it has to wait, and those after it with it."""
        half_offsets = self._transactions.half_offsets
        kept = self._in_place.get(offset)
        if kept is not None and self._is_immune(self._clock.time_ms() - kept.born_timestamp, kept.immunity):
            return True
        half = await self._read(queue, offset)
        if not half_offsets.is_open(offset):
            return True  # it was ended meanwhile
        if half is None:
            half_offsets.end(offset)
            return True
        return self._check_half(half if kept is None or not kept.times else with_check_times(half, kept.times))

    async def _read(self, queue: ConsumeQueueInterface, offset: int) -> MessageExt | None:
        """Return a half message; ``None`` (logged) when it is lost."""
        entry = queue.entry(offset)
        record = await self._queries.read_message(entry[0]) if entry else None
        half = decode_record(record) if record else None
        if half is None or (half.topic, half.queue_offset) != (RMQ_SYS_TRANS_HALF_TOPIC, offset):
            log.error("half message %s is passed over: it is not at %s of the CommitLog, or damaged", offset, entry)
            return None
        return half

    def _check_half(self, half: MessageExt) -> bool:
        times = check_times(half)
        age_ms = self._clock.time_ms() - half.born_timestamp
        if times and (times >= self._config.transaction_check_max or self._is_too_old(age_ms)):
            return self._discard(half, times)
        immunity = immunity_ms(half, self._config.transaction_time_out)
        # A time before its birth comes from a clock that was set back: it is due, as what waited long enough.
        if immunity is not None and self._is_immune(age_ms, immunity):
            if not self._may_copy(half):
                self._in_place[half.queue_offset] = _InPlace(0, half.born_timestamp, immunity)
                return True
            return self._put_back(half, immune_copy(half, self._store_host)) is not None
        if immunity is None and not is_copy(half) and self._is_young(half):
            return False
        return self._ask(half, times + 1)

    def _is_immune(self, age_ms: int, immunity_ms: int) -> bool:
        """Return true if it is too young to be asked for; never when it is older than all messages."""
        return 0 <= age_ms <= immunity_ms and not self._is_too_old(age_ms)

    def _may_copy(self, half: MessageExt) -> bool:
        """Reserve bytes of the log for a copy of the half message; return false when none are left now."""
        return self._copy_budget.take(half.store_size, self._config.transaction_check_bytes_per_second)

    def _is_young(self, half: MessageExt) -> bool:
        """Return whether its producer may still be working on it, by the broker's own clock."""
        return 0 <= self._clock.time_ms() - half.store_timestamp <= self._config.transaction_time_out

    def _is_too_old(self, age_ms: int) -> bool:
        return age_ms > self._store_config.file_reserved_time * _HOUR_MS

    def _ask(self, half: MessageExt, times: int) -> bool:
        copy = checked_copy(half, times, self._store_host)
        if not self._may_copy(half):
            self._in_place[half.queue_offset] = _InPlace(times, 0, -1)
            self._resolve(half, copy, _place_of(half))
            return True
        stored = self._put_back(half, copy)
        if stored is None:
            return False
        if stored.status is not PutMessageStatus.PUT_OK:
            return True
        if self._acknowledgements.required:
            # The answer could come before the copy may be read.
            ask = partial(self._ask_when_acknowledged, half, copy, stored)
            self._acknowledgements.wait_for(stored)(ask)
        else:
            self._resolve(half, copy, stored)
        return True

    def _resolve(self, half: MessageExt, copy: MessageExtBrokerInner, stored: PutMessageResult) -> None:
        if not self._listener.resolve_half_message(half, copy, stored):
            self._absent[half.get_property(PROPERTY_PRODUCER_GROUP)] += 1

    def _ask_when_acknowledged(
        self, half: MessageExt, copy: MessageExtBrokerInner, stored: PutMessageResult, outcome: Acknowledgement
    ) -> None:
        if outcome.ok:
            self._resolve(half, copy, stored)
        else:
            log.warning("transaction %s is not checked, its copy is not on disk: %s", half.uniq_key, outcome.reason)

    def _put_back(self, half: MessageExt, copy: MessageExtBrokerInner) -> PutMessageResult | None:
        """Store the half message at the end of its queue; ``None`` when that is to be tried again."""
        result = self._transactions.put(copy)
        if result.status is PutMessageStatus.PUT_OK:
            self._transactions.half_offsets.put_back(half.queue_offset, result.queue_offset, transaction_key(half))
            return result
        log.error("half message %s cannot be put back: %s %s", half.queue_offset, result.status, result.reason)
        if result.status not in PERMANENT_FAILURES:
            return None
        self._transactions.half_offsets.end(half.queue_offset, transaction_key(half))
        return result

    def _discard(self, half: MessageExt, times: int) -> bool:
        """Move it to TRANS_CHECK_MAX_TIME_TOPIC; false when that is to be tried again."""
        result = self._transactions.put(self._listener.discard(half))
        ok = result.status is PutMessageStatus.PUT_OK
        log.error(
            "transaction %s of %s is given up after %s checks: %s",
            half.uniq_key,
            half.get_property("REAL_TOPIC"),
            times,
            f"it is in TRANS_CHECK_MAX_TIME_TOPIC at {result.queue_offset}"
            if ok
            else f"{result.status} {result.reason}",
        )
        if not ok and result.status not in PERMANENT_FAILURES:
            return False
        self._transactions.half_offsets.end(half.queue_offset, transaction_key(half))
        return True


def _place_of(half: MessageExt) -> PutMessageResult:
    """Return where a half message is stored, as a put would have told it."""
    return PutMessageResult(
        PutMessageStatus.PUT_OK, half.commit_log_offset, half.queue_offset, half.store_timestamp, half.store_size
    )
