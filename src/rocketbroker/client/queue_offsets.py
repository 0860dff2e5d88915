"""Offsets of queues and of consumer groups (MQAdminImpl and RemoteBrokerOffsetStore)."""

from typing import Protocol

from rocketbroker.client.requests import answer_header, check_success, client_request
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.headers.message import (
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
