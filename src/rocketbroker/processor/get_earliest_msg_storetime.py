"""GET_EARLIEST_MSG_STORETIME (32): store time of the first message of a queue (AdminBrokerProcessor)."""

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.support.name_check import check_queue
from rocketbroker.store.read.message_queries import MessageQueries


class GetEarliestMsgStoretimeProcessor:
    """Answers a store time in ms; -1 for a queue without messages."""

    def __init__(self, queries: MessageQueries) -> None:
        self._queries = queries

    def process(
        self, _connection: Connection, command: RemotingCommand[GetEarliestMsgStoretimeRequestHeader]
    ) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the topic or the queue is illegal.
        """
        header = command.header
        check_queue(header.topic, header.queue_id)
        timestamp = self._queries.earliest_message_time(header.topic, header.queue_id)
        return response(header=GetEarliestMsgStoretimeResponseHeader(timestamp))
