"""State of a consumer, and the result of a message that it consumed on request (codes 307 and 309)."""

from enum import StrEnum

import msgspec

from rocketbroker.codec.remoting.bodies.heartbeat import SubscriptionData
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.java_types import Int, Long


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

    properties: dict[str, str] = msgspec.field(default_factory=dict)
    subscription_set: list[SubscriptionData] | None = None
    mq_table: dict[MessageQueue, ProcessQueueInfo] = msgspec.field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = msgspec.field(default_factory=dict)
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
