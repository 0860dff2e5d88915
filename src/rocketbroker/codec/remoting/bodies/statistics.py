"""Statistics of topics, groups and brokers. The tables by queue have objects as keys: ``{{...}:{...}}``."""

import msgspec

from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.java_types import Long


class TopicOffset(RemotingSerializable):
    """Offsets of one queue; ``last_update_timestamp`` in ms, 0 if nothing was stored."""

    min_offset: Long = 0
    max_offset: Long = 0
    last_update_timestamp: Long = 0


class TopicStatsTable(RemotingSerializable):
    """Answer to GET_TOPIC_STATS_INFO (202); ``topic_put_tps`` in messages per second."""

    offset_table: dict[MessageQueue, TopicOffset] = msgspec.field(default_factory=dict)
    topic_put_tps: float = 0.0


class OffsetWrapper(RemotingSerializable):
    """One queue as a group sees it; ``last_timestamp`` in ms, 0 if nothing was consumed."""

    broker_offset: Long = 0
    consumer_offset: Long = 0
    pull_offset: Long = 0
    last_timestamp: Long = 0


class ConsumeStats(RemotingSerializable):
    """Answer to GET_CONSUME_STATS (208); ``consume_tps`` in messages per second."""

    offset_table: dict[MessageQueue, OffsetWrapper] = msgspec.field(default_factory=dict)
    consume_tps: float = 0.0


class ConsumeStatsList(RemotingSerializable):
    """Answer to GET_BROKER_CONSUME_STATS (317): for each group, a map from the group to its statistics by topic."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = msgspec.field(default_factory=list)
    broker_addr: str | None = None
    total_diff: Long = 0
    total_inflight_diff: Long = 0


class BrokerStatsItem(RemotingSerializable):
    """Sum over a time, per second, and per call."""

    sum: Long = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(RemotingSerializable):
    """Answer to VIEW_BROKER_STATS_DATA (315)."""

    stats_minute: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)


class QueueTimeSpan(RemotingSerializable):
    """Store times of the first and last message of a queue, and of the group's position; in ms, and as text."""

    message_queue: MessageQueue | None = None
    min_time_stamp: Long = 0
    max_time_stamp: Long = 0
    consume_time_stamp: Long = 0
    delay_time: Long = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(RemotingSerializable):
    """Answer to QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: list[QueueTimeSpan] = msgspec.field(default_factory=list)
