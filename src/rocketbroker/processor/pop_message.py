"""POP_MESSAGE, PEEK_MESSAGE (org.apache.rocketmq.broker.processor.PopMessageProcessor, PeekMessageProcessor).

A pop visits queues in turn until it has as many messages as it asks for: the group's retry topic first or last, and the
queues of the topic from a random one on, unless it names one. In a topic with ``message.type=PRIORITY`` the queues are
priorities, and it begins at the highest. What it took from a queue is in the log, as a check point, before the answer.
A queue that another pop reads from disk just then is left out.
"""

import random
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Final, NamedTuple

import msgspec

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.consumer_group_info import SUB_ALL
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.send_back_allowance import SendBackAllowance
from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService, PopRequest
from rocketbroker.broker.longpolling.pull_request import Wanted
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.consumer_order_info_manager import ConsumerOrderInfoManager
from rocketbroker.broker.pop.pop_check_points import PopCheckPoints
from rocketbroker.broker.pop.pop_queues import PopQueue
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_decoder import QUEUE_OFFSET_POSITION, decode_record, encode_message
from rocketbroker.codec.message.message_properties import replace_property
from rocketbroker.codec.message.pop_info import (
    ALL_QUEUES,
    REVIVE_QUEUE_ORDERLY,
    ExtraInfo,
    msg_offset_entry,
    order_count_entries,
    pop_retry_topic,
    retry_flag,
    start_offset_entry,
)
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.frame import JOIN_LIMIT, encode_head
from rocketbroker.codec.remoting.handler import HELD, Audience, Buffer, Connection, Held, InTurn
from rocketbroker.codec.remoting.headers.pop import (
    PeekMessageRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rocketbroker.codec.remoting.hot_responses import pop_response_head
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.processor.support.pop_checks import PopChecks, check_invisible_time
from rocketbroker.processor.support.pull_subscriptions import PullSubscriptions, filter_of_queues
from rocketbroker.processor.support.put_answers import put_refusal
from rocketbroker.processor.support.request_family import Refusal, answers
from rocketbroker.processor.support.table_change import wait_settled
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult, GetMessageStatus
from rocketbroker.store.read.message_fetcher import MessageFetcher, split_records

_MOST_BYTES: Final = 128 * 1024 * 1024
# A pop that waited for so long to be read is not served: its client has given up, and would not see the messages.
_LATE_MS: Final = 500
_MIN, _MAX = 0, 1  # initMode (ConsumeInitMode)
_POP_CK: Final = b"POP_CK"
_AT_SLAVE = Refusal(ResponseCode.SYSTEM_BUSY, "this broker is a slave, at which nothing is popped; pop at the master")

_MOVED: Final = frozenset(
    {
        GetMessageStatus.OFFSET_TOO_SMALL,
        GetMessageStatus.OFFSET_OVERFLOW_BADLY,
        GetMessageStatus.OFFSET_FOUND_NULL,
    }
)

PopCommand = RemotingCommand[PopMessageRequestHeader]


class _Pop(msgspec.Struct):
    """A pop under way.

    Attributes:
        wanted: the tags codes or the filter of its subscription.
        plan: queues still to visit, as topic and number.
        pop_time: time of the pop in ms; with the start offset it names a check point.
        rest: messages that could be popped at once.
    """

    connection: Connection
    command: PopCommand
    wanted: Wanted
    plan: Iterator[tuple[str, int]]
    pop_time: int
    revive_queue_id: int
    count: int = 0
    size: int = 0
    rest: int = 0
    may_wait: bool = True
    buffers: list[ReadableBuffer] = []
    start_offsets: list[str] = []
    message_offsets: list[str] = []
    order_counts: list[str] = []


class _Reading(NamedTuple):
    """Messages of a queue that are read from disk, from an offset on, once ``result`` is awaited."""

    queue: PopQueue
    offset: int
    result: Awaitable[GetMessageResult]


class PopMessageProcessor:
    """Answers pops, and holds those that find nothing."""

    def __init__(  # noqa: PLR0913 - each is one thing that a pop depends on
        self,
        *,
        config: BrokerConfig,
        checks: PopChecks,
        topics: TopicConfigManager,
        consumers: ConsumerManager,
        subscriptions: PullSubscriptions,
        fetcher: MessageFetcher,
        check_points: PopCheckPoints,
        offsets: ConsumerOffsetManager,
        orders: ConsumerOrderInfoManager,
        polling: PopLongPollingService,
        stats: BrokerStatsManager,
        send_backs: SendBackAllowance,
        clock: Clock,
    ) -> None:
        self._config = config
        self._checks = checks
        self._topics = topics
        self._consumers = consumers
        self._subscriptions = subscriptions
        self._fetcher = fetcher
        self._check_points = check_points
        self._queues = check_points.queues
        self._offsets = offsets
        self._orders = orders
        self._polling = polling
        self._stats = stats
        self._send_backs = send_backs
        self._clock = clock
        self._pops = 0
        self._run_again = self.pop_message

    @answers(RequestCode.POP_MESSAGE, PopMessageRequestHeader, Audience.CLIENT, at_slave=_AT_SLAVE)
    def pop_message(
        self, connection: Connection, command: PopCommand, held: PopRequest | None = None
    ) -> Command | list[Buffer] | InTurn | Held:
        """Return messages that no other client of the group gets for a time, or hold the pop until there are some.

        A pop that was ``held`` is held again if another one was faster, until its time is over.

        Raises:
            BrokerResponseError: POLLING_TIMEOUT, POLLING_FULL; NO_PERMISSION, TOPIC_NOT_EXIST, INVALID_PARAMETER,
                SUBSCRIPTION_GROUP_NOT_EXIST, SUBSCRIPTION_PARSE_FAILED; SYSTEM_ERROR if timer messages are disabled or
                the disk cannot be read.
        """
        header, config, now = command.header, self._config, self._clock.time_ms()
        late_ms = 0
        if held is None:
            # Clients name their own time.
            if header.born_time > 0:
                late_ms = now - header.born_time - header.poll_time
            header.born_time = now
        if late_ms > _LATE_MS:
            remark = f"the broker[{config.broker_ip1}] pop message is timeout too much"
            raise BrokerResponseError(ResponseCode.POLLING_TIMEOUT, remark)
        topic = self._checks.topic(connection, header.topic, header.queue_id)
        self._checks.most(header.max_msg_nums)
        check_invisible_time(header.invisible_time)
        group = self._checks.group(connection, header.consumer_group)
        if self._check_points.count >= config.pop_ck_max_buffer_size:
            remark = (
                f"popCkMaxBufferSize: {self._check_points.count:,} check points are open and the limit is "
                f"{config.pop_ck_max_buffer_size:,}; acknowledge messages, or raise popCkMaxBufferSize"
            )
            raise BrokerResponseError(ResponseCode.POLLING_FULL, remark)
        wanted = self._subscriptions.carried(header.exp_type, header.exp or SUB_ALL)
        self._pops += 1
        revive_queue_id = self._pops % self._check_points.revive_queue_nums
        pop = _Pop(
            connection,
            command,
            wanted,
            self._plan(topic, group, header),
            now,
            REVIVE_QUEUE_ORDERLY if header.order else revive_queue_id,
        )
        reading = self._visit_rest(pop)
        is_safe = not pop.count or self._checks.groups.settled(header.consumer_group) is None
        return self._finish(pop) if reading is None and is_safe else InTurn(self._finish_later(pop, reading))

    def _plan(
        self, topic: TopicConfig, group: SubscriptionGroupConfig, header: PopMessageRequestHeader
    ) -> Iterator[tuple[str, int]]:
        """Return the queues to visit in order.

        One answer names a queue number once for the topic and once for retries, so that it holds one retry topic. Each
        chance has a number of its own, so that each setting has the effect that it names, whatever the others are.
        """
        config = self._config
        by_priority = topic.has_priorities and not header.order and _chance(group.priority_factor)
        own = (
            iter([(header.topic, header.queue_id)])
            if header.queue_id >= 0
            else self._queues_from(topic, by_priority=by_priority)
        )
        if header.order:
            return own
        version = 2 if config.enable_retry_topic_v2 else 1
        if version == 2 and config.retrieve_message_from_pop_retry_topic_v1 and _chance(50):
            version = 1
        retry_topic = self._topics.select(pop_retry_topic(header.topic, header.consumer_group, version))
        if retry_topic is None:
            return own
        probability = (
            config.pop_from_retry_probability_for_priority if by_priority else config.pop_from_retry_probability
        )
        retries = self._queues_from(retry_topic, by_priority=by_priority)
        return chain(retries, own) if _chance(probability) else chain(own, retries)

    def _queues_from(self, topic: TopicConfig, *, by_priority: bool) -> Iterator[tuple[str, int]]:
        """Return the queues of a topic from that of the highest priority on, or from any one on."""
        queue_nums = topic.read_queue_nums
        first = int(random.random() * queue_nums) if queue_nums > 1 and not by_priority else 0
        queue_ids = chain(range(first, queue_nums), range(first))
        if self._config.priority_order_asc:
            queue_ids = chain(reversed(range(first)), reversed(range(first, queue_nums)))
        return zip(repeat(topic.topic_name), queue_ids, strict=False)

    # -- visits

    def _visit_rest(self, pop: _Pop) -> _Reading | None:
        """Visit the queues that are left, up to one that has to be read from disk.

        Raises:
            BrokerResponseError: SYSTEM_ERROR; the disk cannot be read.
        """
        header = pop.command.header
        may_pass = not header.order and not self._offsets.resets
        for name, queue_id in pop.plan:
            if may_pass and pop.count >= header.max_msg_nums:
                # Most visits: nothing is taken any more, and nothing has to be committed.
                known = self._queues.known_position(name, header.consumer_group, queue_id)
                if known is not None:
                    pop.rest += max(self._fetcher.queue_end(name, queue_id) - known, 0)
                    continue
            queue = self._queues.get(name, header.consumer_group, queue_id)
            try:
                reading = self._visit(pop, queue)
            except StoreError as error:
                raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from error
            if reading is not None:
                return reading
        return None

    async def _finish_later(self, pop: _Pop, reading: _Reading | None) -> Command | list[Buffer]:
        """Finish a pop with a queue whose messages are read on a thread, or once its new group is on disk."""
        pop.may_wait = False
        while reading is not None:
            queue = reading.queue
            queue.is_busy = True
            try:
                result = await reading.result
            except StoreError as error:
                raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from error
            finally:
                queue.is_busy = False
            self._take(pop, queue, reading.offset, result)
            reading = self._visit_rest(pop)
        if pop.count:
            # Messages of a group that a start does not know would not return.
            await wait_settled([self._checks.groups.settled(pop.command.header.consumer_group)])
        answer = self._finish(pop)
        assert answer is not HELD, "it may not wait"
        return answer

    def _visit(self, pop: _Pop, queue: PopQueue) -> _Reading | None:
        """Take messages from a queue, or return how to read them from disk.

        Raises:
            StoreError: The disk cannot be read.
            BrokerResponseError: A record could not be stored, and the pop has no messages yet.
        """
        header = pop.command.header
        if self._offsets.is_reset(queue.group, queue.topic, queue.queue_id):
            taken = self._check_points.take_reset(queue)
            if taken.status is not PutMessageStatus.PUT_OK:
                if not pop.count:
                    raise put_refusal(taken)
                return None
        offset = self._position(pop, queue)
        left = header.max_msg_nums - pop.count
        if header.order and self._is_blocked(pop, queue):
            # Its messages do not count as left: an acknowledgement wakes the pops that wait for them.
            return None
        if left <= 0 or queue.is_busy or self._is_full(queue) or (offset, pop.pop_time) in queue.open:
            pop.rest += max(self._fetcher.queue_end(queue.topic, queue.queue_id) - offset, 0)
            return None
        result = self._read(pop, queue, offset, left)
        if isinstance(result, GetMessageResult) and result.status in _MOVED and result.next_begin_offset != offset:
            # The offset is outside the queue, or at the end of a file.
            offset = result.next_begin_offset
            self._queues.commit(queue, offset, pop.connection.share)
            result = self._read(pop, queue, offset, left)
        if not isinstance(result, GetMessageResult):
            return _Reading(queue, offset, result)
        self._take(pop, queue, offset, result)
        return None

    def _read(
        self, pop: _Pop, queue: PopQueue, offset: int, most: int
    ) -> GetMessageResult | Awaitable[GetMessageResult]:
        tag_codes, message_filter = pop.wanted
        matches = None if tag_codes is None else tag_codes.__contains__
        return self._fetcher.fetch(
            GetMessageRequest(
                queue.topic, queue.queue_id, offset, most, _MOST_BYTES, matches, message_filter, scans_ahead=True
            )
        )

    def _position(self, pop: _Pop, queue: PopQueue) -> int:
        """Return the offset to pop next; commit the first one of a new group."""
        offset, topic, queue_id = self._queues.position(queue), queue.topic, queue.queue_id
        if offset >= 0:
            return offset
        first, end = self._fetcher.queue_range(topic, queue_id)
        config = self._config
        if pop.command.header.init_mode == _MIN or topic != pop.command.header.topic:
            offset = first
        elif config.init_pop_offset_by_check_msg_in_mem and not first and self._is_young(topic, queue_id, end):
            offset = 0
        else:
            # The last message is delivered, so that the group is known to begin here.
            offset = max(end - 1, 0)
        self._queues.commit(queue, offset, pop.connection.share)
        return offset

    def _is_young(self, topic: str, queue_id: int, end: int) -> bool:
        return not end or self._fetcher.is_in_memory(topic, queue_id, 0)

    def _is_blocked(self, pop: _Pop, queue: PopQueue) -> bool:
        """Return true if the queue's last batch is not acknowledged, or its time is not over."""
        header = pop.command.header
        if self._orders.check_block(header.attempt_id, *queue.where, header.invisible_time):
            return True
        pop_time = self._orders.next_pop_time(*queue.where)
        if pop_time > pop.pop_time and pop.count:
            return True
        pop.pop_time = max(pop.pop_time, pop_time)
        return False

    def _is_full(self, queue: PopQueue) -> bool:
        config = self._config
        return config.enable_pop_message_threshold and queue.in_flight > config.pop_inflight_message_threshold

    def _take(self, pop: _Pop, queue: PopQueue, offset: int, result: GetMessageResult) -> None:
        """Add the messages of a read to a pop, once their check point is stored.

        Raises:
            BrokerResponseError: The check point could not be stored, and the pop has no other messages.
        """
        header, following = pop.command.header, result.next_begin_offset
        if result.message_count:
            is_retry = queue.topic != header.topic and not self._config.pop_response_return_actual_retry_topic
            offsets: Sequence[int]
            records: dict[int, memoryview] = {}
            if result.message_count == following - offset and not header.order and not is_retry:
                # As many as there are offsets: one message at each.
                offsets = range(offset, following)
            else:
                records = {_queue_offset(each): each for each in split_records(result.buffers)}
                offsets = list(records)
            if header.order:
                delivered = self._orders.acknowledged(*queue.where)
            stored = self._store(pop, queue, offset, offsets)
            if stored.status is not PutMessageStatus.PUT_OK:
                if not pop.count:
                    raise put_refusal(stored)
                pop.rest += max(result.max_offset - offset, 0)
                return
            retry = retry_flag(queue.topic, queue.group)
            buffers: Sequence[ReadableBuffer] = result.buffers
            if header.order:
                # A pop after a gap: those after it that are acknowledged stay in the batch, but are not delivered.
                offsets = [each for each in offsets if each not in delivered]
                buffers = [records[each] for each in offsets]
            elif is_retry:
                buffers = self._recoded(pop, queue, offset, records.values())
            pop.start_offsets.append(start_offset_entry(retry, queue.queue_id, offset))
            pop.message_offsets.append(msg_offset_entry(retry, queue.queue_id, offsets))
            pop.buffers += buffers
            pop.count += len(offsets)
            self._stats.group_get(queue.topic, queue.group).add_popped(result.message_count, result.total_size)
            self._send_backs.give(pop.connection, result.total_size)
        if following > offset and not (header.order and result.message_count):
            self._queues.commit(queue, following, pop.connection.share)
        pop.rest += max(result.max_offset - following, 0)

    def _store(self, pop: _Pop, queue: PopQueue, offset: int, offsets: Sequence[int]) -> PutMessageResult:
        """Store the check point of a pop, or the batch of an ordered one."""
        header = pop.command.header
        if not header.order:
            return self._check_points.open(
                queue, offset, pop.pop_time, header.invisible_time, offsets, pop.revive_queue_id
            )
        counts = self._orders.update(header.attempt_id, *queue.where, pop.pop_time, header.invisible_time, offsets)
        retry = retry_flag(queue.topic, queue.group)
        pop.order_counts += order_count_entries(
            retry, queue.queue_id, {each: counts.consumed.get(each, 0) for each in offsets}
        )
        return self._check_points.put_order(queue)

    def _recoded(self, pop: _Pop, queue: PopQueue, offset: int, records: Iterable[memoryview]) -> list[bytes]:
        """Return messages of a retry topic as messages of their own topic, with a handle."""
        header = pop.command.header
        recoded = []
        for record in records:
            message = decode_record(record)
            handle = ExtraInfo(
                offset,
                pop.pop_time,
                header.invisible_time,
                pop.revive_queue_id,
                retry_flag(queue.topic, queue.group),
                self._check_points.broker_name,
                queue.queue_id,
                message.queue_offset,
            )
            # A message of a batch may carry the handle of an earlier delivery.
            message.properties_bytes = replace_property(message.properties_bytes, _POP_CK, handle.encode().encode())
            message.topic = header.topic
            recoded.append(encode_message(message))
        return recoded

    def _finish(self, pop: _Pop) -> Command | list[Buffer] | Held:
        """Answer a pop, or hold it if it found nothing and may wait."""
        header = pop.command.header
        answer: Command | list[Buffer] | Held
        if pop.count:
            if pop.rest > 0:
                # Another waiting pop can have the rest.
                self._polling.wake(header.topic, header.consumer_group, header.queue_id)
            size = sum(map(len, pop.buffers))
            head = pop_response_head(pop.command.opaque, self._header(pop), size)
            pieces = [head, *pop.buffers]
            answer = [b"".join(pieces)] if size <= JOIN_LIMIT else pieces
        else:
            self._stats.group_get(header.topic, header.consumer_group).misses += 1
            left_ms = header.born_time + header.poll_time - self._clock.time_ms()
            if pop.may_wait and left_ms > 0:
                self._suspend(pop, left_ms)
                answer = HELD
            else:
                remark = GetMessageStatus.NO_MESSAGE_IN_QUEUE.name
                answer = response(ResponseCode.POLLING_TIMEOUT, remark, self._header(pop))
        # Only now: a pop that is refused leaves nothing in memory.
        self._consumers.compensate_subscribe_data(
            header.consumer_group, header.topic, header.exp_type, header.exp or SUB_ALL
        )
        return answer

    def _suspend(self, pop: _Pop, left_ms: int) -> None:
        """Hold a pop.

        Raises:
            BrokerResponseError: POLLING_FULL; too many pops are held.
        """
        header, (tag_codes, message_filter) = pop.command.header, pop.wanted
        topic = self._topics.select(header.topic)
        all_queues = range(topic.read_queue_nums if topic is not None else 0)
        queue_ids = all_queues if header.queue_id < 0 else [header.queue_id]
        if header.order:
            visible = [self._orders.next_visible_ms(header.topic, header.consumer_group, each) for each in queue_ids]
            wakes = [at - self._clock.time_ms() for at in visible if at is not None]
            left_ms = max(min([left_ms, *wakes]), 0)
        self._polling.suspend(
            PopRequest(
                pop.connection,
                pop.command,
                header.topic,
                header.consumer_group,
                max(header.queue_id, ALL_QUEUES),
                tag_codes,
                filter_of_queues(
                    self._fetcher, header.topic, queue_ids, partial(self._committed, header), message_filter
                ),
                filtered_queues=len(queue_ids),
                run=self._run_again,
            ),
            left_ms,
        )

    def _committed(self, header: PopMessageRequestHeader, queue_id: int) -> int:
        return max(self._offsets.query(header.consumer_group, header.topic, queue_id), 0)

    def _header(self, pop: _Pop) -> PopMessageResponseHeader:
        header = pop.command.header
        return PopMessageResponseHeader(
            pop.pop_time,
            header.invisible_time,
            pop.revive_queue_id,
            pop.rest,
            ";".join(pop.start_offsets),
            ";".join(pop.message_offsets),
            ";".join(pop.order_counts) if header.order else None,
        )

    # -- peek

    @answers(RequestCode.PEEK_MESSAGE, PeekMessageRequestHeader, Audience.CLIENT, at_slave=_AT_SLAVE)
    def peek_message(self, connection: Connection, command: RemotingCommand[PeekMessageRequestHeader]) -> InTurn:
        """Return messages that a pop would get, without hiding them from the group.

        Raises:
            BrokerResponseError: As for POP_MESSAGE; nothing is held, and PULL_NOT_FOUND says that there is no message.
        """
        header = command.header
        topic = self._checks.topic(connection, header.topic, header.queue_id)
        self._checks.most(header.max_msg_nums)
        return InTurn(self._peek(command, topic))

    async def _peek(
        self, command: RemotingCommand[PeekMessageRequestHeader], topic: TopicConfig
    ) -> Command | list[Buffer]:
        header = command.header
        is_known = self._checks.groups.contains(header.consumer_group)
        stats = self._stats.group_get(header.topic, header.consumer_group) if is_known else self._stats.passing_gets
        queue_ids = [header.queue_id] if header.queue_id >= 0 else range(topic.read_queue_nums)
        buffers: list[ReadableBuffer] = []
        count = rest = 0
        for queue_id in queue_ids:
            committed = self._offsets.query(header.consumer_group, header.topic, queue_id)
            first, end = self._fetcher.queue_range(header.topic, queue_id)
            offset = max(committed, first)
            rest += max(end - offset, 0)
            if count < header.max_msg_nums and offset < end:
                request = GetMessageRequest(header.topic, queue_id, offset, header.max_msg_nums - count, _MOST_BYTES)
                try:
                    result = self._fetcher.fetch(request)
                    if not isinstance(result, GetMessageResult):
                        result = await result
                except StoreError as error:
                    raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from error
                if result.message_count:
                    stats.add_popped(result.message_count, result.total_size)
                buffers += result.buffers
                count += result.message_count
        # As RocketMQ counts them: those that this answer holds are among the rest.
        fields = PopMessageResponseHeader(0, 0, 0, rest)
        if not count:
            return response(ResponseCode.PULL_NOT_FOUND, GetMessageStatus.NO_MESSAGE_IN_QUEUE.name, fields)
        answer, size = response(ResponseCode.SUCCESS, GetMessageStatus.FOUND.name, fields), sum(map(len, buffers))
        if size > JOIN_LIMIT:
            answer.opaque = command.opaque
            return [encode_head(answer, size), *buffers]
        answer.body = b"".join(buffers)
        return answer


def _chance(percent: int) -> bool:
    """Return true in so many percent of the calls."""
    return random.random() * 100 < percent


def _queue_offset(record: memoryview) -> int:
    return int.from_bytes(record[QUEUE_OFFSET_POSITION : QUEUE_OFFSET_POSITION + 8], "big")
