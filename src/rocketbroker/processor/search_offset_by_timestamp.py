"""SEARCH_OFFSET_BY_TIMESTAMP (29): offset of a queue at a time (AdminBrokerProcessor.searchOffsetByTimestamp)."""

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import SearchOffsetRequestHeader, SearchOffsetResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.name_check import check_queue
from rocketbroker.processor.support.waiting_queries import WaitingQueries
from rocketbroker.store.read.message_queries import MessageQueries

_BOUNDARY_TYPES = ("LOWER", "UPPER")


class SearchOffsetByTimestampProcessor:
    """Answers a queue offset; 0 for a queue without messages."""

    def __init__(self, queries: MessageQueries, waiting: WaitingQueries) -> None:
        self._queries = queries
        self._waiting = waiting

    async def process(self, connection: Connection, command: RemotingCommand[SearchOffsetRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the topic, the queue or ``boundaryType`` is illegal; SYSTEM_BUSY
                if too many queries wait.
        """
        header = command.header
        check_queue(header.topic, header.queue_id)
        boundary = (header.boundary_type or "LOWER").upper()
        if boundary not in _BOUNDARY_TYPES:
            remark = f"the boundaryType {boundary[:64]!r} is illegal; use LOWER or UPPER"
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        place = header.topic, header.queue_id
        async with self._waiting.one_more(connection):
            offset = await self._queries.offset_in_queue_by_time(*place, header.timestamp, boundary)
        return response(header=SearchOffsetResponseHeader(offset))
