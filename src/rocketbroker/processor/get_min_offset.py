"""GET_MIN_OFFSET (31): the start of a queue (AdminBrokerProcessor.getMinOffset)."""

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.offset import GetMinOffsetRequestHeader, GetMinOffsetResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.name_check import check_queue
from rocketbroker.processor.queue_reader import QueueReader


class GetMinOffsetProcessor:
    """Answers the offset of the first message there is; 0 for a queue without messages."""

    def __init__(self, store: QueueReader) -> None:
        self._store = store

    def process(self, _connection: Connection, command: RemotingCommand[GetMinOffsetRequestHeader]) -> Command:
        """Answer the request, with an empty remark as RocketMQ does.

        Raises:
            BrokerResponseError: INVALID_PARAMETER, the topic or the queue is illegal.
        """
        header = command.header
        check_queue(header.topic, header.queue_id)
        offset = self._store.min_offset_in_queue(header.topic, header.queue_id)
        return response(remark="", header=GetMinOffsetResponseHeader(offset))
