"""Filters of groups, and ``config/consumerFilter.json`` (org.apache.rocketmq.broker.filter.ConsumerFilterManager).

Heartbeats register them. A filter whose group has no clients any more is dead; it is kept for
``filterDataCleanTimeSpan``, since a client that comes back mostly has the same one.
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from rocketbroker.broker.client.consumer_group_info import is_tag_type
from rocketbroker.broker.persist.config_manager import ConfigManager, OnPersist, encode_file
from rocketbroker.codec.filter.bloom_filter import ERROR_RATE, EXPECTED_CONSUMERS, bit_count, bit_positions
from rocketbroker.codec.filter.sql_filter import SqlFilter, compiled
from rocketbroker.codec.message.message_properties import get_property_text
from rocketbroker.codec.message.raw_records import PropertyBlocks
from rocketbroker.codec.remoting.bodies.client import SubscriptionData
from rocketbroker.codec.remoting.bodies.topic_config import (
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilterWrapper,
    FilterDataMapByTopic,
)
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import CodecError, MQFilterError
from rocketbroker.common.file_system import LOCAL, FileSystem

log = logging.getLogger(__name__)

SQL92 = "SQL92"
# RocketMQ assumes that groups in the file lost their clients this long before it is loaded.
_DEAD_BEFORE_LOAD_MS = 30_000


def filter_of(expression_type: str, expression: str) -> SqlFilter:
    """Return the compiled filter of an expression (FilterFactory.get, compile).

    Raises:
        MQFilterError: The type is unknown, or the expression is invalid.
    """
    if expression_type != SQL92:
        raise MQFilterError(1, f"the expressionType {expression_type[:64]!r} is unknown; use TAG or SQL92")
    return compiled(expression)


class RegisteredFilter(msgspec.Struct):
    """The compiled filter of a group for a topic."""

    data: ConsumerFilterData
    message_filter: SqlFilter

    @property
    def client_version(self) -> int:
        """The client's version of it; greater is newer."""
        return self.data.client_version


class ConsumerFilterManager(ConfigManager[ConsumerFilterWrapper]):
    """Compiled filters by group and topic. All methods are for the event loop; threads that read may call ``get``.

    Args:
        config: ``enablePropertyFilter``, without which nothing is registered, and ``filterDataCleanTimeSpan``.
    """

    file_name, contents = "consumerFilter.json", ConsumerFilterWrapper

    def __init__(
        self,
        path: Path,
        config: BrokerConfig,
        clock: Clock,
        on_persist: OnPersist | None = None,
    ) -> None:
        super().__init__(path, on_persist)
        self._config = config
        self._clock = clock
        self._by_group: dict[str, dict[str, RegisteredFilter]] = {}
        self._count = 0
        # Number of filters that died since the last cleanup; some may have been revived.
        self._died = 0

    def get(self, topic: str, group: str) -> RegisteredFilter | None:
        """Return the filter of the group for the topic, dead ones included."""
        filters = self._by_group.get(group)
        return None if filters is None else filters.get(topic)

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Register the filters among the subscriptions of a heartbeat; those of the group's other topics become dead.

        An invalid expression is not registered, and removes the one before it: the answer to a pull says what is wrong.
        """
        if not self._config.enable_property_filter:
            return
        topics = set()
        changed = self._make_room()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                changed |= self._register(group, subscription)
        for topic, known in self._by_group.get(group, {}).items():
            if topic not in topics:
                changed |= self._end(known)
        if changed:
            self.persist()

    def _register(self, group: str, subscription: SubscriptionData) -> bool:
        """Register one filter; return true if anything has changed."""
        filters = self._by_group.get(group, {})
        known = filters.get(subscription.topic)
        if known is not None and subscription.sub_version <= known.client_version:
            return subscription.sub_version == known.client_version and self._revive(known)
        if known is not None and _is_same(known.data, subscription):
            known.data.client_version = subscription.sub_version
            self._revive(known)
            return True
        if known is None and self._count >= self._config.max_consumer_filter_nums:
            limit = self._config.max_consumer_filter_nums
            log.warning(
                "consumer group %s: filter not registered: %d filters reach the limit; raise maxConsumerFilterNums",
                group,
                limit,
            )
            return False
        try:
            data = ConsumerFilterData(
                group,
                subscription.topic,
                subscription.sub_string,
                subscription.expression_type,
                subscription.sub_version,
                self._clock.time_ms(),
                bloom_filter_data=_bloom_filter_data(group, subscription.topic),
            )
            registered = RegisteredFilter(data, filter_of(data.expression_type, data.expression))
        except MQFilterError as error:
            log.warning("consumer group %s: its filter for topic %s is rejected: %s", group, subscription.topic, error)
            self._count -= known is not None
            return filters.pop(subscription.topic, None) is not None
        self._count += known is None
        self._by_group.setdefault(group, filters)[subscription.topic] = registered
        log.info("consumer group %s filters topic %s by %.200r", group, subscription.topic, subscription.sub_string)
        return True

    def unregister(self, group: str) -> None:
        """Mark the filters of a group without clients as dead."""
        ended = [self._end(known) for known in self._by_group.get(group, {}).values()]
        if any(ended):
            self.persist()

    def _end(self, known: RegisteredFilter) -> bool:
        if known.data.dead:
            return False
        self._died += 1
        known.data.dead_time, known.data.dead = max(self._clock.time_ms(), known.data.born_time), True
        return True

    @staticmethod
    def _revive(known: RegisteredFilter) -> bool:
        was_dead, known.data.dead_time, known.data.dead = known.data.dead, 0, False
        return was_dead

    def _make_room(self) -> bool:
        """Forget all dead filters if there are too many filters; return true if any may have been dead."""
        if self._count < self._config.max_consumer_filter_nums or not self._died:
            return False
        self._died = 0
        self._forget(self._clock.time_ms())
        return True

    def _forget(self, oldest: int) -> None:
        """Forget the filters that have been dead since ``oldest`` in ms, or longer."""
        for group, filters in list(self._by_group.items()):
            for topic, known in list(filters.items()):
                if known.data.dead and known.data.dead_time <= oldest:
                    log.info("consumer group %s: its unused filter for topic %s is removed", group, topic)
                    del filters[topic]
                    self._count -= 1
            if not filters:
                del self._by_group[group]

    # -- the file

    def load(self, file_system: FileSystem = LOCAL) -> bool:
        """Read the file. An unreadable one stops no start, and is not set aside: clients register their filters again.

        Returns:
            True if there was a readable one.
        """
        try:
            self.decode(self.path.read_bytes())
        except FileNotFoundError:
            return False
        except (CodecError, OSError) as error:
            log.warning("%s is unreadable and ignored; clients register their filters again: %s", self.path, error)
            return False
        self.found = True
        return True

    def encode(self) -> bytes:
        """Return ``consumerFilter.json`` as RocketMQ writes it."""
        self._forget(self._clock.time_ms() - self._config.filter_data_clean_time_span)
        file = ConsumerFilterWrapper()
        for group, filters in self._by_group.items():
            for topic, known in filters.items():
                of_topic = file.filter_data_by_topic.setdefault(topic, FilterDataMapByTopic(topic))
                of_topic.group_filter_data[group] = known.data
        return encode_file(file)

    def count(self, file: ConsumerFilterWrapper) -> int:
        """Return the number of filters."""
        return sum(len(each.group_filter_data) for each in file.filter_data_by_topic.values())

    def take(self, file: ConsumerFilterWrapper) -> None:
        """Replace the table by that of a ``consumerFilter.json``, all dead: no group has clients at a start."""
        self._by_group = {}
        for of_topic in file.filter_data_by_topic.values():
            for data in of_topic.group_filter_data.values():
                self._take(data)
        self._count = self._died = sum(map(len, self._by_group.values()))

    def _take(self, data: ConsumerFilterData) -> None:
        try:
            message_filter = filter_of(data.expression_type, data.expression)
        except MQFilterError as error:
            log.warning("%s: the filter of group %s is invalid and ignored: %s", self.path, data.consumer_group, error)
            return
        data.bloom_filter_data = _bloom_filter_data(data.consumer_group, data.topic)
        if data.dead_time == 0:
            data.dead_time = max(self._clock.time_ms() - _DEAD_BEFORE_LOAD_MS, data.born_time)
        data.dead = True
        self._by_group.setdefault(data.consumer_group, {})[data.topic] = RegisteredFilter(data, message_filter)


def _is_same(data: ConsumerFilterData, subscription: SubscriptionData) -> bool:
    return (data.expression_type, data.expression) == (subscription.expression_type, subscription.sub_string)


def _bloom_filter_data(group: str, topic: str) -> BloomFilterData:
    positions = bit_positions(f"{group}#{topic}", ERROR_RATE, EXPECTED_CONSUMERS)
    return BloomFilterData(bit_count(ERROR_RATE, EXPECTED_CONSUMERS), positions)


RETRY_TOPIC: Final = "RETRY_TOPIC"


class RetryMessageFilter:
    """Applies the filter of each message's original topic; without one the message is delivered."""

    def __init__(self, consumer_filters: ConsumerFilterManager, group: str) -> None:
        self._consumer_filters = consumer_filters
        self._group = group

    #: False, because the filter of any topic may be slow.
    is_quick: Final = False

    def is_matched_by_commit_log(
        self, properties: PropertyBlocks, is_over: Callable[[], bool] | None = None
    ) -> list[bool]:
        """Return, for the properties of each message, true if the group wants it."""
        return [self._is_matched(each) for each in properties.raws()]

    def _is_matched(self, properties: bytes) -> bool:
        topic = get_property_text(properties, RETRY_TOPIC)
        data = None if topic is None else self._consumer_filters.get(topic, self._group)
        return data is None or data.message_filter.is_matched_by_commit_log(PropertyBlocks.of([properties]))[0]
