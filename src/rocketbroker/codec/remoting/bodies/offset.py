"""Tables of offsets, and entries of a ConsumeQueue. Queue ids are integer keys without quotes: ``{0:12}``."""

import msgspec

from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.heartbeat import SubscriptionData
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.java_types import Int, Long


class ConsumerOffsetSerializeWrapper(RemotingSerializable):
    """Answer to GET_ALL_CONSUMER_OFFSET (43) and consumerOffset.json; tables by ``topic@group``, then queue id.

    RocketMQ lacks two tables. ``reset_offset_table``, only in files: offsets that were reset and that consumers have
    still to take over. ``slave_commit_table``: offsets committed at this slave that its master may lack.
    """

    offset_table: dict[str, dict[Int, Long]] = msgspec.field(default_factory=dict)
    data_version: DataVersion | None = None
    pull_offset_table: dict[str, dict[Int, Long]] | None = None
    group_topic_map: dict[str, list[str]] | None = None
    reset_offset_table: dict[str, dict[Int, Long]] | None = None
    slave_commit_table: dict[str, dict[Int, Long]] | None = None


class DelayOffsetSerializeWrapper(RemotingSerializable):
    """Answer to GET_ALL_DELAY_OFFSET (45) and delayOffset.json; by delay level."""

    offset_table: dict[Int, Long] = msgspec.field(default_factory=dict)
    data_version: DataVersion | None = None


class ResetOffsetBody(RemotingSerializable):
    """Answer to INVOKE_BROKER_TO_RESET_OFFSET (222), and body of RESET_CONSUMER_CLIENT_OFFSET (220)."""

    offset_table: dict[MessageQueue, Long] = msgspec.field(default_factory=dict)


class MessageQueueForC(RemotingSerializable):
    """A queue and its offset in the form for the C++ client (org.apache.rocketmq.common.message.MessageQueueForC)."""

    topic: str
    broker_name: str
    queue_id: Int
    offset: Long


class ResetOffsetBodyForC(RemotingSerializable):
    """Body of RESET_CONSUMER_CLIENT_OFFSET (220) for C++ clients, which cannot read maps with object keys."""

    offset_table: list[MessageQueueForC] = msgspec.field(default_factory=list)


class GetConsumerStatusBody(RemotingSerializable):
    """Answer to 221 (``message_queue_table``) and 223 (``consumer_table``, by client id)."""

    message_queue_table: dict[MessageQueue, Long] = msgspec.field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, Long]] = msgspec.field(default_factory=dict)


class QueryCorrectionOffsetBody(RemotingSerializable):
    """Answer to QUERY_CORRECTION_OFFSET (308), by queue id."""

    correction_offsets: dict[Int, Long] = msgspec.field(default_factory=dict)


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

    queue_data: list[ConsumeQueueData] = msgspec.field(default_factory=list)
    max_queue_index: Long = 0
    min_queue_index: Long = 0
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
