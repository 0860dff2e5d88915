"""QUERY_CONSUMER_OFFSET (14): where a group goes on (ConsumerManageProcessor.queryConsumerOffset)."""

from typing import Protocol

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.store.read.get_message import GetMessageResult, GetMessageStatus

_NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
_NOT_ZERO = "Not found, do not set to zero, maybe this group boot first"


class QueueStore(Protocol):
    """What is needed of the message store."""

    def get_message(self, topic: str, queue_id: int, offset: int, max_msgs: int, max_bytes: int) -> GetMessageResult:
        """What a pull would find."""


class QueryConsumerOffsetProcessor:
    """Answers the committed offset.

    A new group is told 0 while the first message of the queue is still in memory, so that it misses nothing of a young
    topic whatever its own rule (consumeFromWhere) says.
    """

    def __init__(self, offsets: ConsumerOffsetManager, store: QueueStore) -> None:
        self._offsets = offsets
        self._store = store

    def process(self, _connection: Connection, command: RemotingCommand[QueryConsumerOffsetRequestHeader]) -> Command:
        """Answer the request; QUERY_NOT_FOUND for a group without an offset."""
        header = command.header
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset >= 0:
            return response(header=QueryConsumerOffsetResponseHeader(offset))
        if header.set_zero_if_not_found is False:
            return response(ResponseCode.QUERY_NOT_FOUND, _NOT_ZERO, {})
        first = self._store.get_message(header.topic, header.queue_id, 0, 1, 1)
        if first.status is GetMessageStatus.FOUND and first.in_memory:
            return response(header=QueryConsumerOffsetResponseHeader(0))
        return response(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND, {})
