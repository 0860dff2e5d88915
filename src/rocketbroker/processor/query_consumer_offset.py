"""QUERY_CONSUMER_OFFSET (14): the committed offset of a group (ConsumerManageProcessor.queryConsumerOffset)."""

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.store.read.message_fetcher import MessageFetcher

_NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
_NOT_ZERO = "Not found, do not set to zero, maybe this group boot first"


class QueryConsumerOffsetProcessor:
    """Answers the committed offset.

    A new group gets 0 while the first message of the queue is still in memory, so that it misses nothing of a young
    topic, whatever its own consumeFromWhere.
    """

    def __init__(self, offsets: ConsumerOffsetManager, fetcher: MessageFetcher) -> None:
        self._offsets = offsets
        self._fetcher = fetcher

    def process(self, _connection: Connection, command: RemotingCommand[QueryConsumerOffsetRequestHeader]) -> Command:
        """Answer the request; QUERY_NOT_FOUND for a group without an offset."""
        header = command.header
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset >= 0:
            return response(header=QueryConsumerOffsetResponseHeader(offset))
        if header.set_zero_if_not_found is False:
            return response(ResponseCode.QUERY_NOT_FOUND, _NOT_ZERO, {})
        if self._fetcher.is_in_memory(header.topic, header.queue_id, 0):
            return response(header=QueryConsumerOffsetResponseHeader(0))
        return response(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND, {})
