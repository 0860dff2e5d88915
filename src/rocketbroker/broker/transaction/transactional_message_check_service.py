"""Questions to producers about open half messages (TransactionalMessageCheckService and its listener)."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import msgspec

from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.message_copy import real_place
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.broker.transaction.transactional_message_service import TransactionalMessageService, read_half
from rocketbroker.broker.transaction.transactional_message_util import (
    CID_SYS_RMQ_TRANS,
    QUEUE_ID,
    check_times,
    checked_copy,
    discarded_message,
    immune_copy,
    immunity_ms,
    is_copy,
    transaction_key,
    with_check_times,
)
from rocketbroker.codec.message.message_const import PROPERTY_PRODUCER_GROUP, PROPERTY_WAIT_STORE_MSG_OK
from rocketbroker.codec.message.message_decoder import encode_message
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_id import create_message_id
from rocketbroker.codec.message.message_properties import MAX_PROPERTIES_LENGTH, replace_property
from rocketbroker.codec.message.topic_validator import RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.codec.remoting.bodies.topic_config import PERM_READ_WRITE
from rocketbroker.codec.remoting.headers.message import CheckTransactionStateRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.address_shares import ByteBudget
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.common.lifecycle import TICK_S, TaskOwner
from rocketbroker.store.commitlog.put_message import (
    PERMANENT_FAILURES,
    Acknowledgement,
    Acknowledgements,
    MessageExtBrokerInner,
    PutMessageResult,
    PutMessageStatus,
)
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_queries import MessageQueries

log = logging.getLogger(__name__)

_WAIT = PROPERTY_WAIT_STORE_MSG_OK.encode()
_CHECK_MAX_QUEUES = 1


class TransactionalMessageCheckListener:
    """Asks producers for the outcome of transactions, and discards those without one.

    Args:
        topic_configs: creates TRANS_CHECK_MAX_TIME_TOPIC.
    """

    def __init__(
        self, producers: ProducerManager, topic_configs: TopicConfigManager, broker_name: str, store_host: bytes
    ) -> None:
        self._producers = producers
        self._topic_configs = topic_configs
        self._broker_name = broker_name
        self._store_host = store_host

    def resolve_half_message(self, half: MessageExt, copy: MessageExtBrokerInner, stored: PutMessageResult) -> bool:
        """Ask any member of the producer group; return false if none takes the request.

        Args:
            half: the half message.
            copy: the copy put back in its place, which the producer's answer will name.
            stored: where the copy was stored.
        """
        group = half.get_property(PROPERTY_PRODUCER_GROUP)
        topic, _ = real_place(half.properties_bytes) or (half.topic, QUEUE_ID)
        connection = None if group is None else self._producers.available_channel(group, topic)
        if connection is None:
            return False
        connection.send_oneway(self._check_request(half, copy, stored))
        return True

    def discard(self, half: MessageExt) -> MessageExtBrokerInner:
        """Return the copy of a discarded half message; the first one creates its topic."""
        self._topic_configs.create_in_send_message_back(
            RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, _CHECK_MAX_QUEUES, PERM_READ_WRITE
        )
        return discarded_message(half, self._store_host)

    def _check_request(self, half: MessageExt, copy: MessageExtBrokerInner, stored: PutMessageResult) -> Command:
        header = CheckTransactionStateRequestHeader(
            stored.queue_offset,
            stored.physical_offset,
            RMQ_SYS_TRANS_HALF_TOPIC,
            half.uniq_key,
            half.uniq_key,
            create_message_id(self._store_host, stored.physical_offset),
            self._broker_name,
        )
        topic, queue_id = real_place(half.properties_bytes) or (half.topic, QUEUE_ID)
        # The place to which it was sent, as the producer expects it in its listener.
        shown = msgspec.structs.replace(
            half,
            topic=topic,
            queue_id=queue_id,
            queue_offset=stored.queue_offset,
            commit_log_offset=stored.physical_offset,
            properties_bytes=replace_property(copy.properties, _WAIT, b"false"),
        )
        return request(RequestCode.CHECK_TRANSACTION_STATE, header, encode_message(shown), oneway=True)


# Checks of transactions that stay open (o.a.r.broker.transaction.TransactionalMessageCheckService).
#
# Every ``transactionCheckInterval`` the open half messages are checked in order. One that is due is put back at the end
# of its queue with its number of checks raised, and a member of its producer group is asked. The answer is an
# END_TRANSACTION that names the copy. So the queue advances whatever the outcome of one transaction, and half messages
# outlive the files in which they were first stored.
#
# Copies take ``transactionCheckBytesPerSecond`` of the log. Beyond that a half message stays where it is: its producer
# is asked all the same, and its number of checks is kept in memory until there is room for a copy.

_HOUR_MS = 3_600_000


class _InPlace(NamedTuple):
    """An open half message that could not be copied within the rate.

    Attributes:
        times: number of times its producer group was asked; 0 while it is immune.
        born_timestamp: its birth in ms.
        immunity: ms from its birth during which its producer group is not asked.
    """

    times: int
    born_timestamp: int
    immunity: int


class TransactionalMessageCheckService:
    """Tasks that check transactions, write op messages, and commit the progress.

    Args:
        recover: finds the open transactions at the start.
        appender: makes the copies readable.
        acknowledgements: report when a copy may be read.
        config: intervals and limits of the checks.
        may_check: returns false while another broker may check the same transactions.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that a check depends on
        self,
        transactions: TransactionalMessageService,
        listener: TransactionalMessageCheckListener,
        recover: Callable[[], Awaitable[None]],
        appender: MessageAppender,
        queues: ConsumeQueueStore,
        queries: MessageQueries,
        acknowledgements: Acknowledgements,
        *,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        store_host: bytes,
        clock: Clock,
        may_check: Callable[[], bool] = lambda: True,
    ) -> None:
        self._may_check = may_check
        self._transactions = transactions
        self._listener = listener
        self._recover = recover
        self._appender = appender
        self._queues = queues
        self._queries = queries
        self._acknowledgements = acknowledgements
        self._config = config
        self._store_config = store_config
        self._store_host = store_host
        self._clock = clock
        self._last_check = 0.0
        self._copy_budget = ByteBudget(clock)
        self._in_place: dict[int, _InPlace] = {}
        # Producer groups without a client to ask, and the number of their transactions; logged after each round.
        self._absent: Counter[str | None] = Counter()
        self._tasks = TaskOwner("TransactionalMessageCheckService")

    async def start(self) -> None:
        """Find the open transactions and start checking them; the store and the consumer offsets must be loaded."""
        # In each start: another broker may have been the master since the last one.
        await self._recover()
        self._in_place = {}
        self._last_check = self._clock.monotonic()
        self._tasks.every(TICK_S, self._transactions.tick, "op messages")
        self._tasks.every(TICK_S, self._check_when_due, "check")

    async def stop(self) -> None:
        """Stop checking; write op messages and progress."""
        await self._tasks.stop()
        await self._transactions.close()

    async def _check_when_due(self) -> None:
        if (self._clock.monotonic() - self._last_check) * 1000 >= self._config.transaction_check_interval:
            try:
                await self.check()
            finally:
                self._last_check = self._clock.monotonic()

    async def check(self) -> None:
        """Check the open half messages, up to the first that is not due yet."""
        queue = self._queues.find(RMQ_SYS_TRANS_HALF_TOPIC, QUEUE_ID)
        if queue is None:
            return
        half_offsets = self._transactions.half_offsets
        # Messages put back come after this end, and are left to the next round.
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
            log.warning("producer group %s has no ready client to ask about %s open transactions", group, count)
        self._absent.clear()

    async def _check_next(self, queue: ConsumeQueueInterface, offset: int) -> bool:
        """Check an open half message; return false if it is not due yet, and with it all after it."""
        half_offsets = self._transactions.half_offsets
        kept = self._in_place.get(offset)
        if kept is not None and self._is_immune(self._clock.time_ms() - kept.born_timestamp, kept.immunity):
            return True
        half = await read_half(self._queries, queue, offset)
        if not self._may_check():
            return False
        if not half_offsets.is_open(offset):
            return True  # it was ended in the meantime
        if half is None:
            entry = queue.entry(offset)
            log.error("half message %s is skipped: it is not at %s of the CommitLog, or is damaged", offset, entry)
            half_offsets.end(offset)
            return True
        if (meters := self._transactions.meters) is not None:
            meters.read(RMQ_SYS_TRANS_HALF_TOPIC, CID_SYS_RMQ_TRANS, half.store_size)
        return self._check_half(half if kept is None or not kept.times else with_check_times(half, kept.times))

    def _check_half(self, half: MessageExt) -> bool:
        times = check_times(half)
        age_ms = self._clock.time_ms() - half.born_timestamp
        if times and (times >= self._config.transaction_check_max or self._is_too_old(age_ms)):
            return self._discard(half, times)
        immunity = immunity_ms(half, self._config.transaction_time_out)
        # A negative age means that the clock was set back: the message is due, like one that has waited long enough.
        if immunity is not None and self._is_immune(age_ms, immunity):
            copy = immune_copy(half, self._store_host)
            if not self._may_copy(half, copy):
                self._in_place[half.queue_offset] = _InPlace(0, half.born_timestamp, immunity)
                return True
            return self._put_back(half, copy) is not None
        if immunity is None and not is_copy(half) and self._is_young(half):
            return False
        return self._ask(half, times + 1)

    def _is_immune(self, age_ms: int, immunity_ms: int) -> bool:
        """Return true if it is too young to ask about; a message past retention is never immune."""
        return 0 <= age_ms <= immunity_ms and not self._is_too_old(age_ms)

    def _may_copy(self, half: MessageExt, copy: MessageExtBrokerInner) -> bool:
        """Reserve bytes of the log for a copy of the half message; return false if the rate is used up.

        A half message of Apache's broker may lack room for the properties of a copy: it is checked where it is.
        """
        if len(copy.properties) > MAX_PROPERTIES_LENGTH:
            return False
        return self._copy_budget.take(half.store_size, self._config.transaction_check_bytes_per_second)

    def _is_young(self, half: MessageExt) -> bool:
        """Return true if its producer may still be working on it, judged by the broker's own clock."""
        return 0 <= self._clock.time_ms() - half.store_timestamp <= self._config.transaction_time_out

    def _is_too_old(self, age_ms: int) -> bool:
        return age_ms > self._store_config.file_reserved_time * _HOUR_MS

    def _ask(self, half: MessageExt, times: int) -> bool:
        copy = checked_copy(half, times, self._store_host)
        if not self._may_copy(half, copy):
            self._in_place[half.queue_offset] = _InPlace(times, 0, -1)
            self._resolve(half, copy, _place_of(half))
            return True
        stored = self._put_back(half, copy)
        if stored is None:
            return False
        if stored.status is not PutMessageStatus.PUT_OK:
            return True
        if self._acknowledgements.required:
            # Otherwise the answer could come before the copy may be read.
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
            log.warning(
                "transaction %s is not checked because its copy is not on disk: %s", half.uniq_key, outcome.reason
            )

    def _put_back(self, half: MessageExt, copy: MessageExtBrokerInner) -> PutMessageResult | None:
        """Store the half message at the end of its queue; return ``None`` to retry later."""
        result = self._transactions.put(copy)
        if result.status is PutMessageStatus.PUT_OK:
            self._transactions.half_offsets.put_back(half.queue_offset, result.queue_offset, transaction_key(half))
            return result
        log.error("half message %s could not be put back: %s %s", half.queue_offset, result.status, result.reason)
        if result.status not in PERMANENT_FAILURES:
            return None
        self._transactions.half_offsets.end(half.queue_offset, transaction_key(half))
        self._transactions.count_end(half, committed=None)
        return result

    def _discard(self, half: MessageExt, times: int) -> bool:
        """Move it to TRANS_CHECK_MAX_TIME_TOPIC; return false to retry later."""
        result = self._transactions.put(self._listener.discard(half))
        ok = result.status is PutMessageStatus.PUT_OK
        log.error(
            "transaction %s of topic %s is discarded after %s checks: %s",
            half.uniq_key,
            half.get_property("REAL_TOPIC"),
            times,
            f"it is in TRANS_CHECK_MAX_TIME_TOPIC at offset {result.queue_offset}"
            if ok
            else f"{result.status} {result.reason}",
        )
        if not ok and result.status not in PERMANENT_FAILURES:
            return False
        self._transactions.half_offsets.end(half.queue_offset, transaction_key(half))
        self._transactions.count_end(half, committed=None)
        return True


def _place_of(half: MessageExt) -> PutMessageResult:
    """Return the place of a stored half message, in the form of the result of a put."""
    return PutMessageResult(
        PutMessageStatus.PUT_OK, half.commit_log_offset, half.queue_offset, half.store_timestamp, half.store_size
    )
