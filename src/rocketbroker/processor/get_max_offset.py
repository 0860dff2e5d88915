"""GET_MAX_OFFSET (30): the end of a queue (AdminBrokerProcessor.getMaxOffset)."""

from collections.abc import Mapping
from typing import Protocol

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.offset import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.support.name_check import check_queue
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface


class Queues(Protocol):
    """What is needed of the message store."""

    def topic_queues(self, topic: str) -> Mapping[int, ConsumeQueueInterface]:
        """The queues of a topic that ever had a message, by number."""


class GetMaxOffsetProcessor:
    """Answers the offset after the last message: after the last readable one, or with ``committed=false`` after the
    last stored one. A queue without messages, whether it exists or not, ends at 0.
    """

    def __init__(self, store: Queues) -> None:
        self._store = store

    def process(self, _connection: Connection, command: RemotingCommand[GetMaxOffsetRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER, the topic or the queue is illegal.
        """
        header = command.header
        check_queue(header.topic, header.queue_id)
        queue = self._store.topic_queues(header.topic).get(header.queue_id)
        if queue is None:
            return response(header=GetMaxOffsetResponseHeader(0))
        return response(header=GetMaxOffsetResponseHeader(queue.max_offset if header.committed else queue.next_offset))
