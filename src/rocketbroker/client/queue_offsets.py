"""Offsets of queues and of consumer groups (MQAdminImpl and RemoteBrokerOffsetStore)."""

import logging
from typing import Protocol

from rocketbroker.client.pull_result import PullResult
from rocketbroker.client.requests import answer_header, check_success, client_request
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

#: Difference that the clocks of client and broker may have, where no message of a queue was pulled.
CLOCK_MARGIN_MS = 10_000


class InvokeAtBroker(Protocol):
    """Sends a request to the broker that has a queue."""

    async def __call__(self, queue: MessageQueue, command: Command, timeout_s: float | None = None) -> Command:
        """Return the answer, whatever its code."""


class QueueOffsets:
    """Asks the broker of a queue for offsets, and commits them. Each method may raise BrokerResponseError.

    Args:
        invoke: sends a request to the master of a queue.
    """

    def __init__(self, invoke: InvokeAtBroker) -> None:
        self._invoke = invoke

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset after the last message."""
        header = GetMaxOffsetRequestHeader(queue.topic, queue.queue_id)
        answer = await self._invoke(queue, client_request(RequestCode.GET_MAX_OFFSET, header))
        return answer_header(answer, GetMaxOffsetResponseHeader).offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that is still there."""
        header = GetMinOffsetRequestHeader(queue.topic, queue.queue_id)
        answer = await self._invoke(queue, client_request(RequestCode.GET_MIN_OFFSET, header))
        return answer_header(answer, GetMinOffsetResponseHeader).offset

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at that time or after it."""
        header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms)
        answer = await self._invoke(queue, client_request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header))
        return answer_header(answer, SearchOffsetResponseHeader).offset

    async def after_a_move(self, queue: MessageQueue, offset: int, result: PullResult, known_ms: int) -> int:
        """Return where to continue a queue that does not have an offset; log the move.

        A queue that ends below it belongs to a topic that was deleted and made again, or has lost its last messages.
        All messages of the former are new, and those of the latter were consumed. They differ in their store times: the
        queue is new if its first message is younger than what the consumer knew of the old one.

        Args:
            queue: the queue.
            offset: the offset that does not exist.
            result: the answer to the pull at it.
            known_ms: store time of the last message that was pulled, or time at which the queue was taken.

        Raises:
            RocketBrokerError: a broker does not answer.
        """
        begin, end = result.min_offset, result.max_offset
        if end < offset and await self.search_offset(queue, known_ms + 1) <= begin:
            log.warning(
                "%s ends at %d, below %d, and its messages are new: its topic was made again; it is consumed from its "
                "beginning, %d",
                queue,
                end,
                offset,
                begin,
            )
            return begin
        log.warning("%s continues at %d instead of %d, which does not exist", queue, result.next_begin_offset, offset)
        return result.next_begin_offset

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the offset that a group has committed, or None: the broker knows none."""
        header = QueryConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id)
        answer = await self._invoke(queue, client_request(RequestCode.QUERY_CONSUMER_OFFSET, header))
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return answer_header(answer, QueryConsumerOffsetResponseHeader).offset

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Keep at the broker that a group has consumed all messages before ``offset``."""
        header = UpdateConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, offset)
        check_success(await self._invoke(queue, client_request(RequestCode.UPDATE_CONSUMER_OFFSET, header)))
