"""Append path: CommitLog write, then dispatch, on the event loop (CommitLog.asyncPutMessage, DefaultMessageStore)."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat

from rocketbroker.codec.message.message_batch import BatchParts
from rocketbroker.codec.message.message_const import (
    PROPERTY_DELAY_TIME_LEVEL,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    deliver_timestamp,
    level_of,
)
from rocketbroker.codec.message.message_properties import (
    MAX_PROPERTIES_LENGTH,
    MAX_SENT_PROPERTIES_LENGTH,
    find_properties,
    find_properties_of_batch,
    get_property,
    replace_property,
)
from rocketbroker.codec.message.tags_code import tags_code_bytes
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.storefile.consume_queue_layout import ENTRY
from rocketbroker.codec.storefile.record_search import may_look_torn
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import (
    MessageIllegalError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    TopicBeingDeletedError,
)
from rocketbroker.store.commitlog.commit_log import CommitLog, EncodedRun
from rocketbroker.store.commitlog.message_ext_encoder import AppendBatch, AppendRun
from rocketbroker.store.commitlog.put_message import (
    BatchRun,
    MessageExtBrokerInner,
    MessageRun,
    PutMessageResult,
    PutMessageStatus,
    Refusal,
    StandingRefusals,
)
from rocketbroker.store.dispatch.commit_log_dispatcher import CommitLogDispatcher
from rocketbroker.store.flush.flush_service import CommitLogFlusher
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.queue.dispatch_request import DispatchRequest, DispatchRun

_DELAY = PROPERTY_DELAY_TIME_LEVEL.encode()


# sysFlag bits of half messages and rollbacks, which no queue gets.
_NOT_QUEUED = {TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE}
_TRANSACTION_BITS = TRANSACTION_ROLLBACK_TYPE
# An enum lookup takes 20 times as long.
_PUT_OK = PutMessageStatus.PUT_OK
_LOOKS_TORN = PutMessageResult(
    PutMessageStatus.MESSAGE_ILLEGAL,
    reason="the properties end with a NUL character or have 511 in a row: after a power loss such a message would look "
    "incomplete; put the value into the body, or encode it",
)
_STATUS_OF: dict[type[StoreError], PutMessageStatus] = {
    StoreFullError: PutMessageStatus.DISK_FULL,
    StoreBusyError: PutMessageStatus.OS_PAGE_CACHE_BUSY,
    MessageIllegalError: PutMessageStatus.MESSAGE_ILLEGAL,
    TopicBeingDeletedError: PutMessageStatus.TOPIC_BEING_DELETED,
}


class MessageAppender:
    """Appends messages and dispatches them to their queues.

    Args:
        delay_levels: ms by level; a message of SCHEDULE_TOPIC_XXXX is queued by its delivery time.
        sync_flusher: knows what is on disk; set under SYNC_FLUSH, where only that may be read.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - a put depends on each of these
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        dispatcher: CommitLogDispatcher,
        config: MessageStoreConfig,
        clock: Clock,
        delay_levels: dict[int, int],
        refusals: StandingRefusals,
        sync_flusher: CommitLogFlusher | None = None,
    ) -> None:
        self._refusals = refusals
        self._sync_flusher = sync_flusher
        self._delay_levels = delay_levels
        self._commit_log = commit_log
        self._queues = queues
        self._dispatcher = dispatcher
        self._config = config
        self._clock = clock
        # Messages of the log that may not be in their queues yet. Other threads read this list: it grows in place, and
        # a shorter list replaces it only after the missing messages are in their queues.
        self._pending: list[DispatchRequest] = []
        self._dispatching = False
        # CommitLog offset up to which a ``ReplicaLog`` has dispatched, ``None`` while none is running.
        self.replica_offset: int | None = None
        # Called after messages were appended, while slaves follow the log.
        self.on_appended: Callable[[], None] | None = None
        # Store time of the last message in ms.
        self.last_store_timestamp = 0
        self.put_count = 0

    def put_copy(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Append a copy of a stored message, or another one of the broker's own, as ``put_message`` does.

        The limits of sends do not hold: ``maxMessageSize`` may have been lowered since the message was acknowledged,
        and the room that sends leave in their properties is for copies.
        """
        return self.put_message(message, is_copy=True)

    def put_message(self, message: MessageExtBrokerInner, *, is_copy: bool = False) -> PutMessageResult:
        """Append one message and return the result; the next ``dispatch`` makes it readable."""
        if (refused := self._refusals.current) is not None and not self._dispatch_recovered():
            return refused
        properties = message.properties
        # Most messages need no further look: a call less for each.
        if (
            len(properties) > MAX_SENT_PROPERTIES_LENGTH
            or b"\0" in properties
            or len(message.body) > self._config.max_message_size
        ) and (illegal := self._illegal(message, is_copy=is_copy)) is not None:
            return illegal
        queued = message.sys_flag & _TRANSACTION_BITS not in _NOT_QUEUED
        timestamp = self._clock.time_ms()
        try:
            queue = self._queues.for_message(message.topic, message.queue_id)
            queue_offset = 0
            if queued:
                queue_offset = queue.next_offset
                if queue_offset >= queue.room_end:
                    # Before the log gets the message: a queue without room rejects only its own messages.
                    queue.make_room(queue_offset + 1)
            offset, size = self._commit_log.append(message, queue, queue_offset, timestamp)
        except StoreError as error:
            return failed(error)
        if queued:
            queue.next_offset = queue_offset + 1
            found = message.found or find_properties(properties)
            if queue.schedule:
                level = level_of(get_property(properties, _DELAY) or b"")
                tags_code = deliver_timestamp(self._delay_levels, level, timestamp)
            else:
                tags_code = tags_code_bytes(found[0])
            self._pending.append((queue, queue_offset, offset, size, tags_code, timestamp, found))
        # After the message became pending: see ``last_dispatched_timestamp``.
        self.last_store_timestamp = timestamp
        self.put_count += 1
        return PutMessageResult(_PUT_OK, offset, queue_offset, timestamp, size)

    def put_run(self, run: MessageRun) -> PutMessageResult | None:
        """Append messages that came together by one write; the next ``dispatch`` makes them readable.

        Returns ``None``, with nothing stored, if one of them might be rejected: then put each by itself.
        """
        if (
            self._refusals.current is not None
            or max(map(len, run.properties)) > MAX_SENT_PROPERTIES_LENGTH
            or max(map(len, run.bodies)) > self._config.max_message_size
            or run.sys_flag & _TRANSACTION_BITS in _NOT_QUEUED
            or run.topic == RMQ_SYS_SCHEDULE_TOPIC
        ):
            return None
        queues = self._queues.find_open(run.topic, run.queue_ids)
        if queues is None:
            return None
        queue_offsets, ends = _next_offsets(queues, repeat(1))
        records = AppendRun(run, queues[0].topic_block, queues[0].magic)
        tags = [found[0] for found in run.found]
        code_of = {tag: tags_code_bytes(tag) for tag in set(tags)}
        timestamp = self._clock.time_ms()
        offsets = self._append_run(records, queue_offsets, ends, timestamp)
        if offsets is None:
            return None
        # From here on nothing may fail: the log has the messages.
        self._pending += zip(
            queues,
            queue_offsets,
            offsets,
            records.sizes,
            map(code_of.__getitem__, tags),
            repeat(timestamp),
            run.found,
            strict=False,
        )
        self.last_store_timestamp = timestamp
        self.put_count += len(offsets)
        return PutMessageResult(
            _PUT_OK, offsets[0], queue_offsets[0], timestamp, records.total, "", offsets, queue_offsets
        )

    def put_batches(self, run: BatchRun) -> PutMessageResult | None:
        """Append batches that came together by one write, and make them readable as ``put_messages`` does.

        Returns ``None``, with nothing stored, if one of them might be rejected: then put each by itself.
        """
        from rocketbroker.store.commitlog.append_batches import AppendBatches, queue_entries

        most = max(run.counts) * run.messages.rows.shape[1]
        if self._refusals.current is not None or most > self._config.max_message_size:
            return None
        if len(run.messages.properties) > MAX_SENT_PROPERTIES_LENGTH:
            return None
        queues = self._queues.find_open(run.topic, run.queue_ids)
        if queues is None or queues[0].holds_batches or queues[0].schedule:
            return None
        queue_offsets, ends = _next_offsets(queues, run.counts)
        records = AppendBatches(run, queues[0].topic_block, queues[0].magic)
        tags_code = tags_code_bytes(run.messages.tags)
        timestamp = self._clock.time_ms()
        offsets = self._append_run(records, queue_offsets, ends, timestamp)
        if offsets is None:
            return None
        # From here on nothing may fail: the log has the messages.
        entries = queue_entries(offsets[0], records.size, len(offsets), tags_code)
        for dispatched in _dispatch_runs(run, queues, queue_offsets, entries, timestamp):
            self._dispatch_run(dispatched)
        self.last_store_timestamp = timestamp
        self.put_count += len(offsets)
        return PutMessageResult(
            _PUT_OK, offsets[0], queue_offsets[0], timestamp, records.total, "", offsets, queue_offsets
        )

    def _append_run(
        self,
        records: EncodedRun,
        queue_offsets: Sequence[int],
        ends: Mapping[ConsumeQueueInterface, int],
        timestamp: int,
    ) -> Sequence[int] | None:
        """Write the records of a run and return their offsets; ``None``, with nothing stored, if there is no room."""
        try:
            # Before the log gets the messages: what a queue has no room for is left to single puts.
            for queue, end in ends.items():
                if end > queue.room_end:
                    queue.make_room(end)
            offsets = self._commit_log.append_run(records, queue_offsets, timestamp)
        except StoreError:
            return None
        for queue, end in ends.items():
            queue.next_offset = end
        return offsets

    def put_inner_batch(self, message: MessageExtBrokerInner, count: int) -> PutMessageResult:
        """Append one record that holds a batch to a topic with ``queue.type=BatchCQ``.

        Args:
            message: the batch as body, marked by sysFlag and ``INNER_NUM``; ``INNER_BASE`` is added.
            count: messages in the batch; the record takes as many queue offsets.
        """
        try:
            queue = self._queues.for_message(message.topic, message.queue_id)
        except StoreError as error:
            return failed(error)
        if not queue.holds_batches:
            reason = f"the message is a batch, but topic {message.topic} has no queue.type=BatchCQ"
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, reason=reason)
        message.properties = replace_property(message.properties, b"INNER_BASE", b"%d" % queue.next_offset)
        message.found = None
        result = self.put_message(message)
        if result.status is _PUT_OK:
            queue.next_offset = result.queue_offset + count
            self.put_count += count - 1
        return result

    def put_messages(self, message: MessageExtBrokerInner, parts: BatchParts) -> PutMessageResult:
        """Append several messages to one queue, back to back; either all are stored or none.

        Args:
            message: the common fields; its body and properties are ignored.
            parts: the other fields of each message.
        """
        if (refused := self._refusals.current) is not None and not self._dispatch_recovered():
            return refused
        if parts.body_size > self._config.max_message_size:
            return self._body_too_long(parts.body_size)
        longest = parts.lengths[1] if parts.lengths else max(map(len, parts.properties))
        if longest > MAX_SENT_PROPERTIES_LENGTH:
            return _properties_too_long(longest, MAX_SENT_PROPERTIES_LENGTH)
        if b"\0" in b"".join(parts.properties) and any(map(may_look_torn, parts.properties)):
            return _LOOKS_TORN
        timestamp = self._clock.time_ms()
        commit_log = self._commit_log
        try:
            queue = self._queues.for_message(message.topic, message.queue_id)
            batch = AppendBatch(message, parts)
            first = queue.next_offset
            if (end := first + len(parts.bodies)) > queue.room_end:
                queue.make_room(end)
            offset = commit_log.reserve(batch.total, batch.sizes)
            records, offsets = batch.encode(offset, first, timestamp, commit_log.store_host)
            commit_log.append_encoded(records, offset)
        except StoreError as error:
            return failed(error)
        count = len(offsets)
        queue.next_offset = first + count
        found = find_properties_of_batch(parts.properties, parts.lengths and parts.lengths[1])
        if found.joined_unique_keys:
            codes = [tags_code_bytes(found.tags[0])] * count
        else:
            codes = list(map(tags_code_bytes, found.tags))
        entries = b"".join(map(ENTRY.pack, offsets, batch.sizes, codes))
        run = DispatchRun(queue, first, entries, timestamp, *found)
        self._dispatch_run(run)
        self.last_store_timestamp = timestamp
        self.put_count += count
        return PutMessageResult(_PUT_OK, offset, first, timestamp, batch.total, "", offsets)

    def _dispatch_run(self, run: DispatchRun) -> None:
        """Make a batch readable at once; if that fails, it becomes pending like other messages."""
        if self._sync_flusher is not None or self._dispatching:
            self._pending += run.requests()
            return
        try:
            self.dispatch()
            self._dispatching = True
            self._dispatcher.dispatch_run(run)
        except Exception:  # noqa: BLE001 - the dispatch at the end of the read event runs into it again and reports it
            self._pending += run.requests()
        finally:
            self._dispatching = False

    def dispatch(self) -> None:
        """Make appended messages readable, under SYNC_FLUSH those on disk; retry failed ones.

        A call from a listener does nothing; the next call dispatches what it stored.

        Raises:
            StoreFullError: The disk has no room for queue entries, or for the keys that wait.
            StoreError: They could not be written for another reason.
        """
        if self.on_appended is not None:
            self.on_appended()
        pending = self._pending
        held_back = self._refusals.current is not None and self._refusals.reason(Refusal.NOT_DISPATCHED)
        if self._dispatching or not (pending or held_back):
            return
        ready = len(pending)
        if self._sync_flusher is not None:
            ready = bisect_right(pending, self._sync_flusher.flushed_offset, key=_end_of)
            if ready < len(pending):
                # Perhaps no send waits for this sync: due delayed messages are stored without one.
                self._sync_flusher.wakeup()
        requests = pending[:ready]
        self._dispatching = True
        try:
            self._dispatcher.dispatch(requests)
        except BaseException as error:
            # Whatever the error, these messages are acknowledged: they stay pending until a queue has them.
            held = [request for request in requests if request[1] >= request[0].max_offset]
            self._pending = held + pending[ready:]
            # Unreadable messages must not pile up: sends are rejected until these are readable.
            why = f"messages are stored and readable, but no more can be indexed; each send retries: {error}"
            if held:
                why = (
                    f"{len(held)} messages, from {held[0][2]} of the CommitLog on, are stored but cannot be entered "
                    f"into their queues in {self._config.consume_queue_dir} (storePathConsumeQueue); each send "
                    f"retries: {error}"
                )
            self._refusals.set(Refusal.NOT_DISPATCHED, why)
            raise
        finally:
            self._dispatching = False
        self._pending = pending[ready:]
        if held_back:
            self._refusals.clear(Refusal.NOT_DISPATCHED)

    @property
    def last_dispatched_timestamp(self) -> int:
        """Store time in ms up to which all messages are in their queues (for any thread)."""
        # In this order: a message that is no longer pending at the second look is in its queue.
        stored = self.last_store_timestamp
        pending = self._pending
        # The minimum, not the first message's time: the clock may have been set back after it.
        return min(request[5] for request in pending) - 1 if pending else stored

    @property
    def has_pending(self) -> bool:
        """True if messages wait for their queues."""
        return bool(self._pending)

    @property
    def dispatched_offset(self) -> int:
        """CommitLog offset before which all messages are readable (event loop only)."""
        if self.replica_offset is not None:
            return self.replica_offset
        return self._pending[0][2] if self._pending else self._commit_log.max_offset

    def _dispatch_recovered(self) -> bool:
        """Retry a failed dispatch if only that rejects sends; return true if sends are accepted again."""
        if not self._refusals.only(Refusal.NOT_DISPATCHED):
            return False
        try:
            self.dispatch()
        except StoreError:
            return False
        return self._refusals.current is None

    def _illegal(self, message: MessageExtBrokerInner, *, is_copy: bool) -> PutMessageResult | None:
        """Return the rejection of a message that is too long or looks torn, else ``None``."""
        limit = MAX_PROPERTIES_LENGTH if is_copy else MAX_SENT_PROPERTIES_LENGTH
        if len(message.properties) > limit:
            return _properties_too_long(len(message.properties), limit)
        if may_look_torn(message.properties):
            return _LOOKS_TORN
        if len(message.body) > self._config.max_message_size and not is_copy:
            return self._body_too_long(len(message.body))
        return None

    def _body_too_long(self, length: int) -> PutMessageResult:
        limit = self._config.max_message_size
        reason = f"maxMessageSize: a body of {length:,} bytes exceeds the limit of {limit:,}"
        return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, reason=reason)


def _end_of(request: DispatchRequest) -> int:
    return request[2] + request[3]


def _next_offsets(
    queues: Sequence[ConsumeQueueInterface], counts: Iterable[int]
) -> tuple[list[int], dict[ConsumeQueueInterface, int]]:
    """Return the queue offset that each record, or batch of ``counts`` records, gets, and the end of each queue."""
    offsets: list[int] = []
    ends: dict[ConsumeQueueInterface, int] = {}
    for queue, count in zip(queues, counts, strict=False):
        offset = ends.get(queue)
        if offset is None:
            offset = queue.next_offset
        offsets.append(offset)
        ends[queue] = offset + count
    return offsets, ends


def _dispatch_runs(
    run: BatchRun,
    queues: Sequence[ConsumeQueueInterface],
    queue_offsets: Sequence[int],
    entries: bytes,
    timestamp: int,
) -> Iterator[DispatchRun]:
    """Yield the batches of a run, whose messages have the queue entries ``entries``."""
    tags, unique_keys = run.messages.tags, run.messages.unique_keys
    length = len(unique_keys) // sum(run.counts)
    begin = 0
    for queue, queue_offset, count in zip(queues, queue_offsets, run.counts, strict=True):
        end = begin + count
        yield DispatchRun(
            queue,
            queue_offset,
            entries[begin * ENTRY.size : end * ENTRY.size],
            timestamp,
            [tags] * count,
            (),
            [None] * count,
            unique_keys[begin * length : end * length],
        )
        begin = end


def failed(error: StoreError) -> PutMessageResult:
    """Return the result of a put that failed."""
    status = _STATUS_OF.get(type(error), PutMessageStatus.CREATE_MAPPED_FILE_FAILED)
    return PutMessageResult(status, reason=str(error))


def _properties_too_long(length: int, limit: int) -> PutMessageResult:
    reason = f"the properties have {length:,} bytes; the limit is {limit:,}; put long values into the body"
    return PutMessageResult(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, reason=reason)
