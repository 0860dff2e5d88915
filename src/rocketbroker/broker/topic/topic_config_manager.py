"""Topics and their attributes in ``config/topics.json`` (org.apache.rocketmq.broker.topic.TopicConfigManager)."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

from rocketbroker.broker.persist.config_manager import (
    EntryTexts,
    OnPersist,
    VersionedConfigManager,
    file_text,
    struct_text,
)
from rocketbroker.broker.persist.durable_progress import TableChanges
from rocketbroker.codec.message.pop_info import revive_topic
from rocketbroker.codec.message.topic_message_type import MESSAGE_TYPE
from rocketbroker.codec.message.topic_validator import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    REPLY_TOPIC_POSTFIX,
    RMQ_SYS_BENCHMARK_TOPIC,
    RMQ_SYS_OFFSET_MOVED_EVENT,
    RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC,
    RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC,
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_SELF_TEST_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
    SYNC_BROKER_MEMBER_GROUP_PREFIX,
    SYSTEM_TOPIC_SET,
)
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.topic_config import (
    PERM_INHERIT,
    PERM_READ_WRITE,
    PERM_WRITE,
    QUEUE_TYPE,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.codec.storefile import timer_slots
from rocketbroker.common.address_shares import AddressShares
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError

log = logging.getLogger(__name__)

TIMER_TOPIC = timer_slots.TIMER_TOPIC

SCHEDULE_TOPIC_QUEUE_NUM = 18
BENCHMARK_TOPIC_QUEUE_NUM = 1024
CLUSTER_TOPIC_QUEUE_NUM = 16
REVIVE_TOPIC_QUEUE_NUM = 8


def system_topic_configs(config: BrokerConfig) -> list[TopicConfig]:
    """Return the system topics of a broker with this configuration."""
    cluster, broker = config.broker_cluster_name, config.broker_name
    topics = [
        _topic(RMQ_SYS_SELF_TEST_TOPIC),
        _topic(RMQ_SYS_BENCHMARK_TOPIC, BENCHMARK_TOPIC_QUEUE_NUM),
        _topic(
            cluster, CLUSTER_TOPIC_QUEUE_NUM, PERM_INHERIT | (PERM_READ_WRITE if config.cluster_topic_enable else 0)
        ),
        _topic(broker, 1, PERM_INHERIT | (PERM_READ_WRITE if config.broker_topic_enable else 0)),
        _topic(RMQ_SYS_OFFSET_MOVED_EVENT),
        _topic(RMQ_SYS_SCHEDULE_TOPIC, SCHEDULE_TOPIC_QUEUE_NUM),
        _topic(cluster + REPLY_TOPIC_POSTFIX),
        _topic(revive_topic(cluster), REVIVE_TOPIC_QUEUE_NUM),
        _topic(SYNC_BROKER_MEMBER_GROUP_PREFIX + broker, 1, PERM_INHERIT),
        _topic(RMQ_SYS_TRANS_HALF_TOPIC),
        _topic(RMQ_SYS_TRANS_OP_HALF_TOPIC),
        _topic(RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC),
        _topic(RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC),
        _topic(TIMER_TOPIC),
    ]
    if config.auto_create_topic_enable:
        topics.append(
            _topic(AUTO_CREATE_TOPIC_KEY_TOPIC, config.default_topic_queue_nums, PERM_INHERIT | PERM_READ_WRITE)
        )
    if config.trace_topic_enable:
        topics.append(_topic(config.msg_trace_topic_name))
    return topics


def _topic(name: str, queue_nums: int = 1, perm: int = PERM_READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm)


# Known attributes of topics and groups, and changes to them by requests (AttributeUtil, TopicAttributes).
#
# A request names each attribute after a sign: ``+queue.type=BatchCQ`` adds or changes, ``-queue.type`` deletes.
# Attributes are stored without the sign.


@dataclass(frozen=True, slots=True)
class Attribute:
    """One known attribute: ``changeable`` after creation, its valid values in words, and their test.

    ``unserved`` are values of RocketMQ that this broker's store does not support.
    """

    changeable: bool
    takes: str
    accepts: Callable[[str], bool]
    unserved: frozenset[str] = frozenset()


def _one_of(*values: str, changeable: bool = False, unserved: frozenset[str] = frozenset()) -> Attribute:
    return Attribute(changeable, " or ".join(values), lambda value: value in values, unserved)


CLEANUP_POLICY = "cleanup.policy"
COMPACTION = "COMPACTION"

TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    QUEUE_TYPE: _one_of("BatchCQ", "SimpleCQ"),
    CLEANUP_POLICY: _one_of("DELETE", unserved=frozenset({COMPACTION})),
    MESSAGE_TYPE: _one_of(
        "UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED", changeable=True
    ),
}


def unserved_attribute(attributes: Mapping[str, str]) -> str | None:
    """Return ``name=value`` of an attribute that this broker does not support; a store taken over may have it."""
    for name, attribute in TOPIC_ATTRIBUTES.items():
        if attributes.get(name) in attribute.unserved:
            return f"{name}={attributes[name]}"
    return None


def alter_attributes(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Return the attributes after a request.

    Args:
        known: the known attributes.
        current: attributes of the existing topic, ``None`` for a new one.
        changes: values by name with its sign; the value of a ``-`` is ignored.

    Raises:
        BrokerResponseError: SYSTEM_ERROR, naming the attribute that is unknown, unchangeable, missing or has a wrong
            value.
    """
    altered = dict(current or {})
    seen: set[str] = set()
    for signed_name, value in changes.items():
        sign, name = signed_name[:1], signed_name[1:]
        if not name or "+" in name or "-" in name:
            _refuse(f"kv string format wrong. key: {signed_name!r}, use a name with one + or - before it")
        if name in seen:
            _refuse(f"alter duplication key. key: {name}")
        seen.add(name)
        if sign != "+" and current is None:
            _refuse(f"only add attribute is supported while creating topic. key: {name}")
        if sign not in {"+", "-"}:
            _refuse(f"wrong format key: {name}")
        if sign == "-" and name not in (current or ()):
            _refuse(f"attempt to delete a nonexistent key: {name}")
        attribute = known.get(name)
        if attribute is None:
            _refuse(f"unsupported key: {name}")
        if current is not None and not attribute.changeable:
            _refuse(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            del altered[name]
            continue
        if value in attribute.unserved:
            _refuse(f"{name}={value} is not supported by this broker; use {attribute.takes}")
        if not attribute.accepts(value):
            _refuse(f"value is not in set: {name}={value}; use {attribute.takes}")
        altered[name] = value
    return altered


def _refuse(remark: str) -> NoReturn:
    raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)


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
        config: system topics, limits, and whether a first message creates its topic.
    """

    file_name, contents = "topics.json", TopicConfigSerializeWrapper

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

    def on_disk(self, topic: str) -> TopicConfig | None:
        """Return the topic as it is on disk, ``None`` if it is not."""
        return self._changes.on_disk(topic)

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

    def encoder(self) -> Callable[[], bytes]:
        """Return a function that makes the text on a thread: topics are replaced, never altered."""
        version, topics = struct_text(self.data_version, 1), dict(self.topics)
        return lambda: file_text(dataVersion=version, topicConfigTable=self._texts.object_text(topics))

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
        """Remember the version that the write covers."""
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
