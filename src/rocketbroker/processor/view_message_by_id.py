"""VIEW_MESSAGE_BY_ID (33): the message at a CommitLog offset (QueryMessageProcessor.viewMessageById)."""

from typing import Protocol

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.pull_message import ViewMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.support.waiting_queries import WaitingQueries


class RecordReader(Protocol):
    """What is needed of the message store."""

    async def read_queued_message(self, physical_offset: int) -> bytes | None:
        """The record at an offset of the CommitLog, if a queue leads to it."""


class ViewMessageByIdProcessor:
    """Answers one whole record that a queue leads to; the offset is the second half of an offset message id."""

    def __init__(self, store: RecordReader, queries: WaitingQueries) -> None:
        self._store = store
        self._queries = queries

    async def process(self, _connection: Connection, command: RemotingCommand[ViewMessageRequestHeader]) -> Command:
        """Answer the request; SYSTEM_ERROR when no message is there.

        Raises:
            BrokerResponseError: SYSTEM_BUSY, too many queries wait.
        """
        offset = command.header.offset
        with self._queries.one_more():
            record = await self._store.read_queued_message(offset)
        if record is None:
            return response(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return response(body=record)
