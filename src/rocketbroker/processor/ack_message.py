"""ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME (AckMessageProcessor, ChangeInvisibleTimeProcessor).

An answer of success is a promise: the message does not return to the group, whatever happens to the broker. So it waits
for the disk under SYNC_FLUSH. A message whose invisible time was over, and that has returned, is delivered again
nevertheless; RocketMQ answers SUCCESS then too, and clients rely on it.
"""

from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.consumer_order_info_manager import AckRefusal, ConsumerOrderInfoManager
from rocketbroker.broker.pop.pop_check_points import PopCheckPoints
from rocketbroker.broker.pop.pop_queues import PopQueue
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.pop_info import (
    REVIVE_QUEUE_ORDERLY,
    ExtraInfo,
    decode_extra_info,
    real_topic,
)
from rocketbroker.codec.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from rocketbroker.codec.remoting.hot_responses import bare_success_response
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.processor.support.pop_checks import check_invisible_time
from rocketbroker.processor.support.put_answers import acknowledged_answer, put_refusal
from rocketbroker.processor.support.request_checks import illegal_queue, read_body
from rocketbroker.processor.support.request_family import NO_MESSAGES, Refusal, answers
from rocketbroker.store.commitlog.put_message import Acknowledgements, PutMessageResult, PutMessageStatus
from rocketbroker.store.read.message_fetcher import MessageFetcher

_AT_SLAVE = Refusal(ResponseCode.SYSTEM_BUSY, NO_MESSAGES)


@dataclass(frozen=True, slots=True)
class AckMessageRequests:
    """Acknowledgements of popped messages, and changes of their time."""

    topics: TopicConfigManager
    fetcher: MessageFetcher
    check_points: PopCheckPoints
    offsets: ConsumerOffsetManager
    orders: ConsumerOrderInfoManager
    polling: PopLongPollingService
    acknowledgements: Acknowledgements
    fast_failure: BrokerFastFailure
    stats: BrokerStatsManager
    clock: Clock

    @answers(RequestCode.ACK_MESSAGE, AckMessageRequestHeader, Audience.CLIENT, at_slave=_AT_SLAVE)
    def ack_message(
        self, connection: Connection, command: RemotingCommand[AckMessageRequestHeader]
    ) -> bytes | Command | Awaitable[Command]:
        """Acknowledge a message: the group does not get it again.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST; INVALID_PARAMETER for a lite topic; MESSAGE_ILLEGAL if the queue or
                the handle is wrong, or the handle is not that of an ordered batch; NO_MESSAGE if the queue has no
                message at the offset; the codes of a send if the acknowledgement could not be stored.
        """
        header = command.header
        self._check_place(connection, header, beyond=1)  # as in RocketMQ
        handle = _handle(header.extra_info)
        self._check_room(connection)
        queue = self._queue(header.topic, header.consumer_group, header.queue_id)
        if queue is None or self._is_foreign(handle.broker_name):
            return bare_success_response(command.opaque)
        if handle.is_order:
            result = self._ack_in_order(connection, queue, header.offset, handle.pop_time)
        else:
            result = self._ack(queue, handle.ck_queue_offset, handle.pop_time, [header.offset])
        return self._acknowledged(command, [result])

    @answers(RequestCode.BATCH_ACK_MESSAGE, None, Audience.CLIENT, at_slave=_AT_SLAVE)
    def batch_ack_message(self, connection: Connection, command: Command) -> bytes | Command | Awaitable[Command]:
        """Acknowledge messages of several pops; offsets that a queue does not have are left out.

        Raises:
            BrokerResponseError: NO_MESSAGE without messages; SYSTEM_ERROR if the body cannot be read; the codes of a
                send if an acknowledgement could not be stored; those before it are.
        """
        body = read_body(command.body, BatchAckMessageRequestBody) if command.body else BatchAckMessageRequestBody()
        acks = body.acks
        if not acks:
            raise BrokerResponseError(ResponseCode.NO_MESSAGE, "the request acknowledges no message")
        if body.broker_name is not None and self._is_foreign(body.broker_name):
            return response()
        self._check_room(connection)
        results: list[PutMessageResult] = []
        for ack in acks:
            results += self._ack_batch(connection, ack)
        return self._acknowledged(command, results)

    def _ack_batch(self, connection: Connection, ack: BatchAck) -> list[PutMessageResult]:
        try:
            topic = real_topic(ack.topic, ack.consumer_group, ack.retry)
            named = ack.offsets()
        except CodecError as error:
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        first, end = self.fetcher.queue_range(topic, ack.queue_id)
        offsets: Sequence[int]
        if isinstance(named, range):
            offsets = range(max(named.start, first), min(named.stop, end))
        else:
            offsets = [offset for offset in named if first <= offset < end]
        queue = self._queue(topic, ack.consumer_group, ack.queue_id)
        if queue is None or not offsets:
            return []
        if ack.revive_queue_id == REVIVE_QUEUE_ORDERLY:
            return [self._ack_in_order(connection, queue, offset, ack.pop_time) for offset in offsets]
        return [self._ack(queue, ack.start_offset, ack.pop_time, offsets)]

    def _ack(self, queue: PopQueue, start_offset: int, pop_time: int, offsets: Iterable[int]) -> PutMessageResult:
        result, count = self.check_points.acknowledge(queue, start_offset, pop_time, offsets)
        if result.status is not PutMessageStatus.PUT_OK:
            raise put_refusal(result)
        self.stats.group_ack(queue.topic, queue.group).add(count, 0)
        return result

    def _ack_in_order(self, connection: Connection, queue: PopQueue, offset: int, pop_time: int) -> PutMessageResult:
        """Acknowledge a message of an ordered batch, and let others wait for the queue no longer if it was the last."""
        nothing = PutMessageResult(PutMessageStatus.PUT_OK, self.check_points.log_end)
        if offset < self.offsets.query(queue.group, queue.topic, queue.queue_id):
            return nothing
        following = self.orders.commit_and_next(*queue.where, offset, pop_time)
        if following is AckRefusal.ILLEGAL:
            key = "@".join(map(str, queue.where))
            remark = f"offset is illegal, key:{key}, commit:{offset}: its pop had no such message"
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, remark)
        if isinstance(following, AckRefusal):
            return nothing
        if not self.offsets.is_reset(queue.group, queue.topic, queue.queue_id):
            self.check_points.queues.commit(queue, following, connection.share)
        result = self.check_points.put_order(queue)
        if result.status is not PutMessageStatus.PUT_OK:
            raise put_refusal(result)
        if self.orders.next_visible_ms(*queue.where) is None:
            self.polling.wake(*queue.where)
        self.stats.group_ack(queue.topic, queue.group).add(1, 0)
        return result

    @answers(
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTimeRequestHeader, Audience.CLIENT, at_slave=_AT_SLAVE
    )
    def change_message_invisibletime(
        self, connection: Connection, command: RemotingCommand[ChangeInvisibleTimeRequestHeader]
    ) -> Command | Awaitable[Command]:
        """Let a message return at another time; answer the time of its pop for the new handle.

        Raises:
            BrokerResponseError: As for ACK_MESSAGE; INVALID_PARAMETER too if the time is negative or above a year.
        """
        header = command.header
        self._check_place(connection, header, beyond=0)
        check_invisible_time(header.invisible_time)
        handle = _handle(header.extra_info)
        self._check_room(connection)
        queue = self._queue(header.topic, header.consumer_group, header.queue_id)
        if queue is None or self._is_foreign(handle.broker_name):
            fields = ChangeInvisibleTimeResponseHeader(self.clock.time_ms(), header.invisible_time, handle.revive_qid)
            return response(header=fields)
        if handle.is_order:
            return self._change_in_order(queue, header, handle)
        result, pop_time = self.check_points.change(
            queue,
            handle.ck_queue_offset,
            handle.pop_time,
            header.offset,
            header.invisible_time,
            suspended=header.suspend,
        )
        if result.status is not PutMessageStatus.PUT_OK:
            raise put_refusal(result)
        fields = ChangeInvisibleTimeResponseHeader(pop_time, header.invisible_time, handle.revive_qid)
        return self._answer([result], response(header=fields))

    def _change_in_order(
        self, queue: PopQueue, header: ChangeInvisibleTimeRequestHeader, handle: ExtraInfo
    ) -> Command | Awaitable[Command]:
        visible_ms = self.clock.time_ms() + header.invisible_time
        fields = ChangeInvisibleTimeResponseHeader(handle.pop_time, visible_ms - handle.pop_time, handle.revive_qid)
        if header.offset < self.offsets.query(queue.group, queue.topic, queue.queue_id):
            return response(header=fields)
        self.orders.update_next_visible_time(*queue.where, header.offset, handle.pop_time, visible_ms)
        result = self.check_points.put_order(queue)
        if result.status is not PutMessageStatus.PUT_OK:
            raise put_refusal(result)
        return self._answer([result], response(header=fields))

    def _check_place(
        self, connection: Connection, header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader, beyond: int
    ) -> None:
        """Check that a queue has the message; an offset may lie ``beyond`` the last one."""
        if header.lite_topic:
            remark = f"liteTopic {header.lite_topic}: this broker has no lite topics, so nothing was popped from one"
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        topic = self.topics.select(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please!"
            raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = illegal_queue(header.queue_id, topic, connection)
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, remark)
        first, end = self.fetcher.queue_range(header.topic, header.queue_id)
        if not first <= header.offset < end + beyond:
            remark = (
                f"offset is illegal, key:{header.topic}@{header.queue_id}, commit:{header.offset}, store:{first}~{end}"
            )
            raise BrokerResponseError(ResponseCode.NO_MESSAGE, remark)

    def _is_foreign(self, broker_name: str) -> bool:
        """Return true for the handle of another broker, which may have popped at the same time from the same offset.

        It is answered SUCCESS and changes nothing. In RocketMQ a check point names its broker; of an ordered batch it
        acknowledges whatever broker the handle names.
        """
        return broker_name != self.check_points.broker_name

    def _check_room(self, connection: Connection) -> None:
        if self.acknowledgements.required or connection.waited_s:
            self.fast_failure.check(connection)

    def _queue(self, topic: str, group: str, queue_id: int) -> PopQueue | None:
        """Return a queue that the group has an offset in, ``None`` if it has popped nothing there."""
        queues = self.check_points.queues
        found = queues.find(topic, group, queue_id)
        if found is None and self.offsets.query(group, topic, queue_id) >= 0:
            found = queues.get(topic, group, queue_id)
        return found

    def _acknowledged(self, command: Command, results: list[PutMessageResult]) -> bytes | Command | Awaitable[Command]:
        if not self.acknowledgements.required:
            return bare_success_response(command.opaque)
        return self._answer(results, response())

    def _answer(self, results: list[PutMessageResult], answer: Command) -> Command | Awaitable[Command]:
        """Answer once the last record is on disk, and so all before it."""
        if not results or not self.acknowledgements.required:
            return answer
        last = max(results, key=lambda result: result.physical_offset)
        wait = self.acknowledgements.wait_for(last)
        # Others may have run since the check. What this request did until now counts as its wait.
        self.fast_failure.begin_put()
        return self.fast_failure.answer_when_acknowledged(wait, partial(acknowledged_answer, answer))


def _handle(extra_info: str) -> ExtraInfo:
    try:
        return decode_extra_info(extra_info)
    except CodecError as error:
        raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
