"""CLEAN_UNUSED_TOPIC (316): removes queues of topics that do not exist (AdminBrokerProcessor.cleanUnusedTopic)."""

import logging
from typing import Protocol

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.processor.admin.unused_topic_remover import UnusedTopicRemover

log = logging.getLogger(__name__)


class Queues(Protocol):
    @property
    def topics(self) -> set[str]:
        """All topics that have queues."""


class CleanUnusedTopicProcessor:
    """Removes the queues of topics that are not in the topic table, with the offsets that groups have in them."""

    def __init__(self, queues: Queues, remover: UnusedTopicRemover) -> None:
        self._queues = queues
        self._remover = remover

    async def process(self, connection: Connection, _command: Command) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if the disk failed.
        """
        removed = await self._remover.remove(self._queues.topics)
        log.warning("unused topics cleaned by %s: %s", connection.remote_address, ", ".join(sorted(removed)) or "none")
        return response()
