"""GET_MAX_OFFSET (30): the end of a queue (AdminBrokerProcessor.getMaxOffset)."""

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.support.name_check import check_queue
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore


class GetMaxOffsetProcessor:
    """Answers the end of a queue; 0 for a queue that is empty or missing.

    The end is the offset after the last readable message, or with ``committed=false`` after the last stored one.
    """

    def __init__(self, queues: ConsumeQueueStore) -> None:
        self._queues = queues

    def process(self, _connection: Connection, command: RemotingCommand[GetMaxOffsetRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the topic or the queue is illegal.
        """
        header = command.header
        check_queue(header.topic, header.queue_id)
        queue = self._queues.find(header.topic, header.queue_id)
        if queue is None:
            return response(header=GetMaxOffsetResponseHeader(0))
        return response(header=GetMaxOffsetResponseHeader(queue.max_offset if header.committed else queue.next_offset))
