"""VIEW_MESSAGE_BY_ID (33): the message at a CommitLog offset (QueryMessageProcessor.viewMessageById)."""

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import ViewMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.support.waiting_queries import WaitingQueries
from rocketbroker.store.read.message_queries import MessageQueries


class ViewMessageByIdProcessor:
    """Answers one whole record that a queue leads to; the offset is the second half of an offset message id."""

    def __init__(self, queries: MessageQueries, waiting: WaitingQueries) -> None:
        self._queries = queries
        self._waiting = waiting

    async def process(self, connection: Connection, command: RemotingCommand[ViewMessageRequestHeader]) -> Command:
        """Answer the request; SYSTEM_ERROR when no message is there.

        Raises:
            BrokerResponseError: SYSTEM_BUSY if too many queries wait.
        """
        offset = command.header.offset
        async with self._waiting.one_more(connection):
            record = await self._queries.read_queued_message(offset)
        if record is None:
            return response(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return response(body=record)
