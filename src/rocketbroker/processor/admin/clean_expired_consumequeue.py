"""CLEAN_EXPIRED_CONSUMEQUEUE (306): removes the queue entries of expired messages (AdminBrokerProcessor)."""

import logging
from typing import Protocol

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.admin.unused_topic_remover import UnusedTopicRemover

log = logging.getLogger(__name__)


class Cleaning(Protocol):
    async def clean_expired_consume_queue(self) -> str:
        """Remove the entries of expired messages from queues and index; return the failed removals, or ""."""


class Queues(Protocol):
    def topics_without_messages(self) -> set[str]:
        """Return the topics that have queues, but no message in any of them."""


class CleanExpiredConsumequeueProcessor:
    """Removes queue and index files whose messages have expired, and the empty queues of deleted topics.

    RocketMQ also removes the empty queues of existing topics; these would restart at 0, before their consumers.
    """

    def __init__(self, cleaning: Cleaning, queues: Queues, remover: UnusedTopicRemover) -> None:
        self._cleaning = cleaning
        self._queues = queues
        self._remover = remover

    async def process(self, connection: Connection, _command: Command) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if some files could not be removed; the rest is removed.
        """
        refused = await self._cleaning.clean_expired_consume_queue()
        removed = await self._remover.remove(self._queues.topics_without_messages())
        log.warning(
            "expired queues cleaned by %s; removed topics: %s", connection.remote_address, sorted(removed) or "none"
        )
        if refused:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"{refused}; the rest is cleaned")
        return response()
