"""Filters of consumer groups, as ``config/consumerFilter.json`` has them (org.apache.rocketmq.broker.filter)."""

import msgspec

from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.java_types import Int, Long


class BloomFilterData(RemotingSerializable):
    """Bits of a group in the bit map of each message of a topic; ``bit_num`` is the size of the map."""

    bit_num: Int = 0
    bit_pos: list[int] | None = None


class ConsumerFilterData(RemotingSerializable):
    """Filter of a group for a topic; times in ms, ``dead`` and ``dead_time`` after its last client has left."""

    consumer_group: str
    topic: str
    expression: str
    expression_type: str = "SQL92"
    client_version: Long = 0
    born_time: Long = 0
    dead_time: Long = 0
    dead: bool = False
    bloom_filter_data: BloomFilterData | None = None


class FilterDataMapByTopic(RemotingSerializable):
    """Filters of a topic by group."""

    topic: str = ""
    group_filter_data: dict[str, ConsumerFilterData] = msgspec.field(default_factory=dict)


class ConsumerFilterWrapper(RemotingSerializable):
    """All filters by topic."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = msgspec.field(default_factory=dict)
