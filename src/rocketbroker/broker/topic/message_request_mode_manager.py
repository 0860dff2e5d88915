"""Modes of groups and ``config/messageRequestMode.json`` (o.a.r.broker.loadbalance.MessageRequestModeManager)."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from rocketbroker.broker.persist.config_manager import ConfigManager, OnPersist, Settled, encode_file
from rocketbroker.broker.persist.durable_progress import TableChanges
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.pop import (
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)
from rocketbroker.common.config import BrokerConfig

log = logging.getLogger(__name__)

# By topic and group.
Modes: TypeAlias = dict[str, dict[str, SetMessageRequestModeRequestBody]]


class MessageRequestModeManager(ConfigManager[MessageRequestModeSerializeWrapper]):
    """Delivery modes, PULL or POP, that administrators have set. All methods are for the event loop.

    Args:
        config: the mode of all others.
    """

    file_name, contents = "messageRequestMode.json", MessageRequestModeSerializeWrapper

    def __init__(self, path: Path, config: BrokerConfig, on_persist: OnPersist | None = None) -> None:
        super().__init__(path, on_persist)
        self._config = config
        self.table: Modes = {}
        self._changes = TableChanges(self.table)

    def mode_of(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """Return the mode of a group for a topic; a retry topic of the group is pulled from unless set otherwise."""
        found = self.table.get(topic, {}).get(group)
        if found is not None:
            return found
        config = self._config
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX) or config.default_message_request_mode == "PULL":
            return SetMessageRequestModeRequestBody(topic, group)
        return SetMessageRequestModeRequestBody(
            topic, group, MessageRequestMode.POP, config.default_pop_share_queue_num
        )

    def update(self, topic: str, group: str, mode: SetMessageRequestModeRequestBody) -> Settled | None:
        """Set the mode of a group for a topic; return the future of the write."""
        self._changes.put(topic, self.table.get(topic, {}) | {group: mode})
        return self.persist()

    def follow(self, table: Mapping[str, dict[str, SetMessageRequestModeRequestBody]]) -> None:
        """Take over the modes of a slave's master; keep the own ones if it has none, as after a loss."""
        if table and self._changes.follow(table, [topic for topic in self.table if topic not in table]):
            self.persist()

    def encode(self) -> bytes:
        """Return the content of the file."""
        return encode_file(MessageRequestModeSerializeWrapper(self.table))

    def count(self, file: MessageRequestModeSerializeWrapper) -> int:
        """Return the number of topics."""
        return len(file.message_request_mode_map)

    def take(self, file: MessageRequestModeSerializeWrapper) -> None:
        """Add the modes of a file."""
        self.table.update(file.message_request_mode_map)

    def begin_write(self) -> None:
        """Mark the changes that the write covers."""
        self._changes.begin_write()

    def written(self) -> Sequence[asyncio.Future[None]]:
        """Settle the changes that are on disk now."""
        self._changes.written()
        return ()

    def refused(self) -> None:
        """Undo the changes that a failed write covers."""
        if undone := self._changes.refused():
            log.warning("%s: %d changes were undone, the first one of %.200r", self.path, len(undone), undone[0])
