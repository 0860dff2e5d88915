"""The broker's topics and ``config/topics.json`` (org.apache.rocketmq.broker.topic.TopicConfigManager)."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from rocketbroker.broker.persist.config_manager import OnPersist, VersionedConfigManager
from rocketbroker.broker.persist.config_text import EntryTexts, file_text, struct_text
from rocketbroker.broker.persist.table_changes import TableChanges
from rocketbroker.broker.topic.attribute_util import TOPIC_ATTRIBUTES, alter_attributes
from rocketbroker.broker.topic.system_topics import system_topic_configs
from rocketbroker.codec.message.topic_validator import AUTO_CREATE_TOPIC_KEY_TOPIC, SYSTEM_TOPIC_SET
from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig, TopicConfigSerializeWrapper
from rocketbroker.codec.remoting.perm_name import PERM_INHERIT, PERM_WRITE
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.codec.storefile.config_tables import decode_table
from rocketbroker.common.address_shares import AddressShares
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError

log = logging.getLogger(__name__)


class TopicChange(NamedTuple):
    """Changed topics as they are on disk; with ``is_deletion``, others were deleted."""

    topics: list[TopicConfig]
    version: DataVersion
    is_deletion: bool


# Returns futures that callers of the change must wait for.
ChangeListener = Callable[[TopicChange], Sequence[asyncio.Future[None]]]


class TopicConfigManager(VersionedConfigManager[TopicConfigSerializeWrapper]):
    """Topics by name, including system topics. All methods are for the event loop.

    Args:
        path: ``config/topics.json``.
        config: system topics, limits, and whether a first message creates its topic.
        clock: dates the data version.
        on_persist: see ``ConfigManager``.
    """

    def __init__(
        self,
        path: Path,
        config: BrokerConfig,
        clock: Clock,
        on_persist: OnPersist | None = None,
    ) -> None:
        super().__init__(path, clock, on_persist)
        self._config = config
        self._shares = AddressShares(clock)
        self._listeners: list[ChangeListener] = []
        self._texts: EntryTexts[TopicConfig] = EntryTexts()
        self.topics: dict[str, TopicConfig] = {topic.topic_name: topic for topic in system_topic_configs(config)}
        self.system_topics = frozenset(self.topics)
        self._changes = TableChanges(self.topics)
        self._written_version = self.data_version

    def on_change(self, listener: ChangeListener) -> None:
        """Add a listener for changes that are on disk, such as the registration at name servers."""
        self._listeners.append(listener)

    def has_on_disk(self, topic: str, queue_id: int) -> bool:
        """Return true if the topic is on disk and has that queue."""
        config = self._changes.on_disk(topic)
        return config is not None and queue_id < max(config.read_queue_nums, config.write_queue_nums)

    def select(self, topic: str) -> TopicConfig | None:
        """Return the topic, or ``None``."""
        return self.topics.get(topic)

    def is_order_topic(self, topic: str) -> bool:
        """Return true if the topic exists and is ordered."""
        found = self.topics.get(topic)
        return found is not None and found.order

    def create_in_send_message(
        self,
        topic: str,
        default_topic: str,
        remote_address: str,
        queue_nums: int,
        topic_sys_flag: int,
        share: bytes | None = None,
    ) -> TopicConfig | None:
        """Return the topic; create a new one from ``default_topic`` (createTopicInSendMessageMethod).

        A new topic has min(``queue_nums``, those of the default topic) queues, and its permissions without
        PERM_INHERIT. Apache RocketMQ also makes topics without queues, which no producer can use from then on.

        Args:
            topic: its name.
            default_topic: name of the topic to copy.
            remote_address: of the client.
            queue_nums: number of queues that the client asks for.
            topic_sys_flag: see TopicSysFlag.
            share: address whose share of ``maxAutoCreateTopicNums`` it counts for; ``None`` for a trusted peer.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST if there are too many topics, INVALID_PARAMETER if it would have no
                queue.

        Returns:
            ``None`` if the default topic is missing, not inheritable or not writable, or ``autoCreateTopicEnable`` is
            off.
        """
        found = self.topics.get(topic)
        if found is not None:
            return found
        template = self.topics.get(default_topic)
        if template is None or not self._may_inherit(template):
            log.info("topic %s of %s is not created: %s cannot be inherited", topic, remote_address, default_topic)
            return None
        nums = min(queue_nums, template.write_queue_nums)
        if nums <= 0:
            remark = (
                f"defaultTopicQueueNums: topic {topic} would have {nums} queues, the least of {queue_nums} in the "
                f"request and {template.write_queue_nums} of topic {default_topic}; use 1 or more"
            )
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        return self._create(
            TopicConfig(
                topic_name=topic,
                read_queue_nums=nums,
                write_queue_nums=nums,
                perm=template.perm & ~PERM_INHERIT,
                topic_filter_type=template.topic_filter_type,
                topic_sys_flag=topic_sys_flag,
            ),
            share,
        )

    def create_in_send_message_back(
        self,
        topic: str,
        queue_nums: int,
        perm: int,
        sys_flag: int = 0,
        *,
        order: bool = False,
        share: bytes | None = None,
    ) -> TopicConfig:
        """Return the retry or dead-letter topic; create a new one (createTopicInSendMessageBackMethod).

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST; there are too many topics.
        """
        found = self.topics.get(topic)
        if found is None:
            return self._create(
                TopicConfig(
                    topic_name=topic,
                    read_queue_nums=queue_nums,
                    write_queue_nums=queue_nums,
                    perm=perm,
                    topic_sys_flag=sys_flag,
                    order=order,
                ),
                share,
            )
        if found.order != order:
            self._put(msgspec.structs.replace(found, order=order))
        return self.topics[topic]

    def update(self, topic: TopicConfig) -> None:
        """Create or replace a topic; its attributes are changes, with ``+`` or ``-`` before each name.

        Raises:
            BrokerResponseError: An attribute is unknown, unchangeable or has a wrong value, or there are too many
                topics.
        """
        old = self.topics.get(topic.topic_name)
        if old is None:
            self.check_room(1)
        attributes = alter_attributes(TOPIC_ATTRIBUTES, None if old is None else old.attributes, topic.attributes)
        self._put(msgspec.structs.replace(topic, attributes=attributes))

    def check_room(self, added: int) -> None:
        """Check that an administrator may create another topic (``maxTopicNums``).

        Raises:
            BrokerResponseError: SYSTEM_ERROR, naming the limit.
        """
        limit = self._config.max_topic_nums
        if added and len(self.topics) + added > limit:
            raise _too_many("maxTopicNums", len(self.topics) + added, limit, ResponseCode.SYSTEM_ERROR)

    def may_create(self, topic: str, share: bytes | None = None) -> bool:
        """Return true if a client's request may create a new topic (``maxAutoCreateTopicNums``).

        Clients choose among any names with the prefix of system topics, so the few fixed names alone are exempt.
        """
        if topic in self.topics or topic in SYSTEM_TOPIC_SET:
            return True
        return self._shares.allows(share, self._auto_limit - len(self.topics))

    @property
    def _auto_limit(self) -> int:
        return min(self._config.max_auto_create_topic_nums, self._config.max_topic_nums)

    def set_order_topics(self, topics: Iterable[str]) -> None:
        """Mark the topics that a name server has configured as ordered (updateOrderTopicConfig)."""
        for name in topics:
            found = self.topics.get(name)
            if found is not None and not found.order:
                self._put(msgspec.structs.replace(found, order=True))

    def follow(self, topics: Mapping[str, TopicConfig], gone: Iterable[str], version: DataVersion) -> None:
        """Take over the topics of a slave's master; ``gone`` are those that it deleted."""
        self.follow_version(version, changed=self._changes.follow(topics, gone))

    def delete(self, topic: str) -> bool:
        """Remove a topic; return true if there was one."""
        if topic not in self.topics:
            return False
        log.info("topic %s is deleted", topic)
        self._changes.put(topic, None)
        self.changed(topic)
        return True

    def encode(self) -> bytes:
        """Return ``topics.json`` as RocketMQ writes it."""
        return self.encoder()()

    def encoder(self) -> Callable[[], bytes]:
        """See ``ConfigManager``. Topics are replaced, never altered: a thread may encode a copy of the table."""
        version, topics = struct_text(self.data_version, 1), dict(self.topics)
        return lambda: file_text(dataVersion=version, topicConfigTable=self._texts.object_text(topics))

    def parse(self, data: bytes) -> TopicConfigSerializeWrapper:
        """Parse a ``topics.json``."""
        return decode_table("topics.json", data, TopicConfigSerializeWrapper)

    def count(self, file: TopicConfigSerializeWrapper) -> int:
        """Return the number of entries."""
        return len(file.topic_config_table)

    def take(self, file: TopicConfigSerializeWrapper) -> None:
        """Add the topics of a ``topics.json``; they replace system topics of the same name."""
        self.topics.update(file.topic_config_table)
        self.data_version = file.data_version

    def _may_inherit(self, template: TopicConfig) -> bool:
        if template.topic_name == AUTO_CREATE_TOPIC_KEY_TOPIC and not self._config.auto_create_topic_enable:
            return False
        return bool(template.perm & PERM_INHERIT and template.perm & PERM_WRITE)

    def _create(self, topic: TopicConfig, share: bytes | None) -> TopicConfig:
        if not self.may_create(topic.topic_name, share):
            count = len(self.topics) + 1
            raise _too_many("maxAutoCreateTopicNums", count, self._auto_limit, ResponseCode.TOPIC_NOT_EXIST)
        log.info("topic %s is created: %s queues, perm %s", topic.topic_name, topic.write_queue_nums, topic.perm)
        self._shares.add(share)
        self._put(topic)
        return topic

    def _put(self, topic: TopicConfig) -> None:
        self._changes.put(topic.topic_name, topic)
        self.changed(topic.topic_name)

    def _tables(self) -> Iterable[TableChanges[TopicConfig]]:
        return (self._changes,)

    def begin_write(self) -> None:
        """See ``ConfigManager``."""
        super().begin_write()
        self._written_version = self.data_version.copy()

    def written(self) -> Sequence[asyncio.Future[None]]:
        """Notify the listeners; return the futures of their work."""
        written = self._changes.written()
        topics = [config for name, config in written.items() if config is not None and name in self.topics]
        change = TopicChange(topics, self._written_version, is_deletion=None in written.values())
        if not written:
            return ()
        return [future for listener in self._listeners for future in listener(change)]


def _too_many(setting: str, count: int, limit: int, code: ResponseCode) -> BrokerResponseError:
    share = ", or this address's share of it" if code is ResponseCode.TOPIC_NOT_EXIST else ""
    remark = (
        f"{setting}: {count:,} topics exceed the limit of {limit:,}{share}; delete unused topics or raise {setting}"
    )
    return BrokerResponseError(code, remark)
