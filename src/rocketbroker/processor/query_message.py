"""Queries of messages by key and by id (QueryMessageProcessor)."""

from dataclasses import dataclass
from typing import Final

from rocketbroker.auth.policies import Action
from rocketbroker.auth.requester import Requester
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.headers.message import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.processor.support.found_messages import check_found_record
from rocketbroker.processor.support.request_checks import check_known_topic
from rocketbroker.processor.support.request_family import answers
from rocketbroker.processor.support.waiting_queries import WaitingQueries
from rocketbroker.store.read.message_queries import MessageQueries

_NOT_FOUND = "can not find message, maybe time range not correct"
_GET: Final = (Action.GET,)
_INDEX_TYPES = (None, "", "K", "U", "T")


@dataclass(frozen=True, slots=True)
class QueryMessageRequests:
    """Queries of stored messages."""

    config: MessageStoreConfig
    queries: MessageQueries
    waiting: WaitingQueries

    @answers(RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader, Audience.CLIENT, asks=True)
    async def query_message(
        self,
        connection: Connection,
        command: RemotingCommand[QueryMessageRequestHeader],
        requester: Requester | None = None,
    ) -> Command:
        """Answer whole records back to back, newest first, as many as fit into one frame. QUERY_NOT_FOUND
        when no message in the time range has the key.

        The index knows hashes. RocketMQ leaves it to clients to drop messages of another topic whose key has the same
        hash; a user who is checked does not get them, as such a key is easy to make.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the topic, ``maxNum`` or ``indexType`` is illegal; SYSTEM_BUSY if
                too many queries wait; SYSTEM_ERROR if the query would examine too many entries of the index.
        """
        header = command.header
        check(header)
        # All copies with a unique id are requested (retries have it too), whatever number the client named.
        max_num = self.config.default_query_max_num if header.unique_key_query else header.max_num
        index_type = header.index_type or None
        begin, end = header.begin_timestamp, header.end_timestamp
        try:
            async with self.waiting.one_more(connection):
                found = await self.queries.query_message(header.topic, header.key, max_num, begin, end, index_type)
        except StoreError as error:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        records = found.records
        if requester is not None and requester.is_limited:
            records = [each for each in records if decode_record(each, read_body=False).topic == header.topic]
        answer = QueryMessageResponseHeader(found.index_last_update_timestamp, found.index_last_update_physical_offset)
        if not records:
            return response(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND, answer)
        return response(header=answer, body=b"".join(records))

    @answers(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader, Audience.CLIENT, asks=True)
    async def view_message_by_id(
        self,
        connection: Connection,
        command: RemotingCommand[ViewMessageRequestHeader],
        requester: Requester | None = None,
    ) -> Command:
        """Answer one whole record that a queue leads to; the offset is the second half of an offset message id.
        SYSTEM_ERROR when no message is there.

        Raises:
            BrokerResponseError: SYSTEM_BUSY if too many queries wait; NO_PERMISSION for a message of a topic that the
                user may not read.
        """
        offset = command.header.offset
        async with self.waiting.one_more(connection):
            record = await self.queries.read_queued_message(offset)
        if record is None:
            return response(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        check_found_record(requester, record, _GET)
        return response(body=record)


def check(header: QueryMessageRequestHeader) -> None:
    """Check the fields of a query.

    Raises:
        BrokerResponseError: INVALID_PARAMETER, which names the field and its range.
    """
    check_known_topic(header.topic)
    if header.max_num <= 0 and not header.unique_key_query:
        raise BrokerResponseError(
            ResponseCode.INVALID_PARAMETER, f"the maxNum {header.max_num} is illegal; use 1 or more"
        )
    if header.index_type not in _INDEX_TYPES:
        raise BrokerResponseError(
            ResponseCode.INVALID_PARAMETER,
            f"the indexType {header.index_type[:64]!r} is illegal; use K (key), U (unique id) or T (tag)",
        )
