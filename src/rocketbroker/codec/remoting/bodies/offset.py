"""Offsets of queues and groups, statistics, and the tables that slaves fetch."""

import msgspec

from rocketbroker.codec.java_types import Int, Long
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import SubscriptionData
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion, RemotingSerializable


class ConsumerOffsetSerializeWrapper(RemotingSerializable):
    """Answer to GET_ALL_CONSUMER_OFFSET (43) and consumerOffset.json; tables by ``topic@group``, then queue id.

    RocketMQ lacks two tables. ``reset_offset_table``, only in files: offsets that were reset and that consumers have
    still to take over. ``slave_commit_table``: offsets committed at this slave that its master may lack.
    """

    offset_table: dict[str, dict[Int, Long]] = {}
    data_version: DataVersion | None = None
    pull_offset_table: dict[str, dict[Int, Long]] | None = None
    group_topic_map: dict[str, list[str]] | None = None
    reset_offset_table: dict[str, dict[Int, Long]] | None = None
    slave_commit_table: dict[str, dict[Int, Long]] | None = None


class OrderInfo(RemotingSerializable):
    """Last batch of messages that an ordered POP delivered from a queue (ConsumerOrderInfoManager.OrderInfo).

    Attributes:
        pop_time: time of the pop in ms; names the batch.
        invisible_time: ms after the pop for which its messages are invisible; files of early brokers lack it.
        offset_list: queue offset of the first message, then the distance of each other one from it.
        offset_next_visible_time: time in ms at which a message becomes visible, where it was changed after the pop.
        offset_consumed_count: number of earlier deliveries, of messages that had any.
        last_consume_timestamp: time in ms of the last pop.
        commit_offset_bit: bit *i* is set once the *i*-th message is acknowledged.
        attempt_id: attempt of the client that has the batch.
    """

    pop_time: Long = 0
    invisible_time: Long | None = msgspec.field(default=None, name="i")
    offset_list: list[Long] = msgspec.field(default_factory=list, name="o")
    offset_next_visible_time: dict[Long, Long] | None = msgspec.field(default=None, name="ot")
    offset_consumed_count: dict[Long, Int] | None = msgspec.field(default=None, name="oc")
    last_consume_timestamp: Long = msgspec.field(default=0, name="l")
    commit_offset_bit: Long = msgspec.field(default=0, name="cm")
    attempt_id: str | None = msgspec.field(default=None, name="a")


class ConsumerOrderInfoSerializeWrapper(RemotingSerializable):
    """consumerOrderInfo.json, by ``topic@group``, then queue id."""

    table: dict[str, dict[Int, OrderInfo]] = {}


class DelayOffsetSerializeWrapper(RemotingSerializable):
    """Answer to GET_ALL_DELAY_OFFSET (45) and delayOffset.json; by delay level."""

    offset_table: dict[Int, Long] = {}
    data_version: DataVersion | None = None


class ResetOffsetBody(RemotingSerializable):
    """Answer to INVOKE_BROKER_TO_RESET_OFFSET (222), and body of RESET_CONSUMER_CLIENT_OFFSET (220)."""

    offset_table: dict[MessageQueue, Long] = {}


class MessageQueueForC(RemotingSerializable):
    """A queue and its offset in the form for the C++ client (org.apache.rocketmq.common.message.MessageQueueForC)."""

    topic: str
    broker_name: str
    queue_id: Int
    offset: Long


class ResetOffsetBodyForC(RemotingSerializable):
    """Body of RESET_CONSUMER_CLIENT_OFFSET (220) for C++ clients, which cannot read maps with object keys."""

    offset_table: list[MessageQueueForC] = []


class GetConsumerStatusBody(RemotingSerializable):
    """Answer to 221 (``message_queue_table``) and 223 (``consumer_table``, by client id)."""

    message_queue_table: dict[MessageQueue, Long] = {}
    consumer_table: dict[str, dict[MessageQueue, Long]] = {}


class QueryCorrectionOffsetBody(RemotingSerializable):
    """Answer to QUERY_CORRECTION_OFFSET (308), by queue id."""

    correction_offsets: dict[Int, Long] = {}


class ConsumeQueueData(RemotingSerializable):
    """One entry of a ConsumeQueue."""

    physic_offset: Long = 0
    physic_size: Int = 0
    tags_code: Long = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(RemotingSerializable):
    """Answer to QUERY_CONSUME_QUEUE (321)."""

    queue_data: list[ConsumeQueueData] = []
    max_queue_index: Long = 0
    min_queue_index: Long = 0
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


class TopicOffset(RemotingSerializable):
    """Offsets of one queue; ``last_update_timestamp`` in ms, 0 if nothing was stored."""

    min_offset: Long = 0
    max_offset: Long = 0
    last_update_timestamp: Long = 0


class TopicStatsTable(RemotingSerializable):
    """Answer to GET_TOPIC_STATS_INFO (202); ``topic_put_tps`` in messages per second."""

    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: float = 0.0


class OffsetWrapper(RemotingSerializable):
    """One queue as a group sees it; ``last_timestamp`` in ms, 0 if nothing was consumed.

    RocketMQ lacks the last three fields: messages popped and not acknowledged, the time in ms at which the first of
    them return, and messages to pop; ``None`` if the group does not pop the queue.
    """

    broker_offset: Long = 0
    consumer_offset: Long = 0
    pull_offset: Long = 0
    last_timestamp: Long = 0
    pop_in_flight: Long | None = None
    pop_revive_time: Long | None = None
    pop_waiting: Long | None = None


class ConsumeStats(RemotingSerializable):
    """Answer to GET_CONSUME_STATS (208); ``consume_tps`` in messages per second."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class ConsumeStatsList(RemotingSerializable):
    """Answer to GET_BROKER_CONSUME_STATS (317): for each group, a map from the group to its statistics by topic."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
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

    consume_time_span_set: list[QueueTimeSpan] = []


class TimerMetric(RemotingSerializable):
    """Number of waiting timer messages of a topic, and the time in ms of its last change."""

    count: Long = 0
    time_stamp: Long = 0


class TimerMetricsSerializeWrapper(RemotingSerializable):
    """Answer to GET_TIMER_METRICS (61) and ``config/timermetrics``, by topic."""

    timing_count: dict[str, TimerMetric] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class HAConnectionRuntimeInfo(RemotingSerializable):
    """One slave, as its master sees it."""

    addr: str = ""
    slave_ack_offset: Long = 0
    diff: Long = 0
    in_sync: bool = False
    transferred_byte_in_second: Long = 0
    transfer_from_where: Long = 0


class HAClientRuntimeInfo(RemotingSerializable):
    """The copying of a slave."""

    master_addr: str | None = None
    transferred_byte_in_second: Long = 0
    max_offset: Long = 0
    last_read_timestamp: Long = 0
    last_write_timestamp: Long = 0
    master_flush_offset: Long = 0


class HARuntimeInfo(RemotingSerializable):
    """Answer to GET_BROKER_HA_STATUS (907)."""

    master: bool = True
    master_commit_log_max_offset: Long = 0
    in_sync_slave_nums: Int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = []
    ha_client_runtime_info: HAClientRuntimeInfo = msgspec.field(default_factory=HAClientRuntimeInfo)
