"""Clients: heartbeats, connections, locks of queues, state of a consumer (org.apache.rocketmq.remoting.protocol)."""

from enum import StrEnum
from typing import Any, Self

import msgspec

from rocketbroker.codec.java_types import Int, Long
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.remoting_serializable import Buffer, RemotingSerializable, decode_body

# Heartbeats of clients and their subscriptions (org.apache.rocketmq.remoting.protocol.heartbeat).
#
# Java and Go write enums by name, C++ by ordinal with ``subVersion`` as text. Go writes ``codeSet`` as texts; do not
# trust it: the codes follow from ``tagsSet``.


class ConsumeType(StrEnum):
    """Pull or push consumer; in the order of Java's ordinals, like the next two enums."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Broadcasting or clustering."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Start position of a new group."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


_ENUMS: dict[str, type[StrEnum]] = {
    "consumeType": ConsumeType,
    "messageModel": MessageModel,
    "consumeFromWhere": ConsumeFromWhere,
}


class SubscriptionData(RemotingSerializable):
    """Subscription of a group to a topic; ``sub_version`` in ms (Go: ns)."""

    topic: str = ""
    sub_string: str = ""
    sub_version: Long = 0
    tags_set: list[str] = []
    code_set: list[int] = []
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ConsumerData(RemotingSerializable):
    """One group in which a client consumes."""

    group_name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class ProducerData(RemotingSerializable):
    """One group in which a client produces."""

    group_name: str


class HeartbeatData(RemotingSerializable):
    """Request of HEART_BEAT (34). With ``without_sub`` a 5.x client sends a fingerprint instead of its groups."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: Int = 0
    without_sub: bool = False

    @classmethod
    def decode(cls, body: Buffer, *, most_values: int | None = None) -> Self:
        """Decode the heartbeat of any client.

        Raises:
            CodecError: It is not JSON, or a field is missing or of the wrong type; the text names it.
        """
        return decode_body(body, cls, most_values, _with_enum_names)


def _with_enum_names(heartbeat: Any) -> Any:
    groups = heartbeat.get("consumerDataSet") if isinstance(heartbeat, dict) else None
    for group in groups if isinstance(groups, list) else ():
        for key, enum in _ENUMS.items():
            ordinal = group.get(key) if isinstance(group, dict) else None
            if type(ordinal) is int and 0 <= ordinal < len(enum):
                group[key] = list(enum)[ordinal].name
    return heartbeat


class CheckClientRequestBody(RemotingSerializable):
    """Request of CHECK_CLIENT_CONFIG (46)."""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


class Connection(RemotingSerializable):
    """One client; ``client_addr`` as ``ip:port``."""

    client_id: str = ""
    client_addr: str = ""
    language: str = "JAVA"
    version: Int = 0


class ConsumerConnection(RemotingSerializable):
    """Answer to GET_CONSUMER_CONNECTION_LIST (203); subscriptions by topic."""

    connection_set: list[Connection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(RemotingSerializable):
    """Answer to GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: list[Connection] = []


class ProducerInfo(RemotingSerializable):
    """One producer; ``last_update_timestamp`` in ms."""

    client_id: str = ""
    remote_ip: str = msgspec.field(name="remoteIP", default="")
    language: str = "JAVA"
    version: Int = 0
    last_update_timestamp: Long = 0


class ProducerTableInfo(RemotingSerializable):
    """Answer to GET_ALL_PRODUCER_INFO (328), by group."""

    data: dict[str, list[ProducerInfo]] = {}


class GetConsumerListByGroupResponseBody(RemotingSerializable):
    """Answer to GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_id_list: list[str] = []


class QuerySubscriptionResponseBody(RemotingSerializable):
    """Answer to QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    subscription_data: SubscriptionData | None = None
    group: str | None = None
    topic: str | None = None


class LockBatchRequestBody(RemotingSerializable):
    """Request of LOCK_BATCH_MQ (41)."""

    consumer_group: str
    client_id: str
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = []


class LockBatchResponseBody(RemotingSerializable):
    """Answer to LOCK_BATCH_MQ: the queues that the client now holds."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)


class UnlockBatchRequestBody(LockBatchRequestBody):
    """Request of UNLOCK_BATCH_MQ (42)."""


class ProcessQueueInfo(RemotingSerializable):
    """One queue of a consumer; times in ms since 1970."""

    commit_offset: Long = 0
    cached_msg_min_offset: Long = 0
    cached_msg_max_offset: Long = 0
    cached_msg_count: Int = 0
    cached_msg_size_in_mib: Int = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: Long = 0
    transaction_msg_max_offset: Long = 0
    transaction_msg_count: Int = 0
    locked: bool = False
    try_unlock_times: Long = 0
    last_lock_timestamp: Long = 0
    dropped: bool = msgspec.field(name="droped", default=False)
    last_pull_timestamp: Long = 0
    last_consume_timestamp: Long = 0


class ConsumeStatus(RemotingSerializable):
    """Rates of one topic: times in ms, messages in a second, failures of the last hour."""

    pull_rt: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: Long = 0


class ConsumerRunningInfo(RemotingSerializable):
    """Answer to GET_CONSUMER_RUNNING_INFO (307); ``subscription_set`` is None if the client left it out."""

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] | None = None
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    status_table: dict[str, ConsumeStatus] = {}
    jstack: str | None = None


class CMResult(StrEnum):
    """Result of a message that was consumed directly."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(RemotingSerializable):
    """Answer to CONSUME_MESSAGE_DIRECTLY (309)."""

    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_mills: Long = 0
