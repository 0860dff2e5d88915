"""CLEAN_EXPIRED_CONSUMEQUEUE (306): removes what queues hold of messages that are gone (AdminBrokerProcessor)."""

import logging
from typing import Protocol

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.admin.unused_topic_remover import UnusedTopicRemover

log = logging.getLogger(__name__)


class Cleaning(Protocol):
    """What is needed of the cleaning services."""

    async def clean_expired_consume_queue(self) -> str:
        """Remove what queues and index hold of messages that are gone; gives what the disk refused, or ""."""


class Queues(Protocol):
    """What is needed of the queues."""

    def topics_without_messages(self) -> set[str]:
        """Return the topics that have queues, but no message in any of them."""


class CleanExpiredConsumequeueProcessor:
    """Removes queue and index files whose messages are gone, and the queues of topics that exist no more and are empty.

    RocketMQ removes empty queues of topics that exist as well; they would begin at 0 again, before their consumers.
    """

    def __init__(self, cleaning: Cleaning, queues: Queues, remover: UnusedTopicRemover) -> None:
        self._cleaning = cleaning
        self._queues = queues
        self._remover = remover

    async def process(self, connection: Connection, _command: Command) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: SYSTEM_ERROR, the disk refused; what it did not refuse is removed.
        """
        refused = await self._cleaning.clean_expired_consume_queue()
        removed = await self._remover.remove(self._queues.topics_without_messages())
        log.warning(
            "%s cleans expired queues; removed topics: %s", connection.remote_address, sorted(removed) or "none"
        )
        if refused:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"{refused}; all else is cleaned")
        return response()
