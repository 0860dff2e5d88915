"""Rules for names of topics and groups (org.apache.rocketmq.common.topic.TopicValidator).

The remarks are RocketMQ's, because clients receive them in responses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

TOPIC_MAX_LENGTH: Final = 127
#: Groups are part of the names of retry and dead-letter topics, hence fewer.
GROUP_MAX_LENGTH: Final = 120
#: Limit for groups in brokers before 5.0.
LEGACY_GROUP_MAX_LENGTH: Final = 255
RETRY_OR_DLQ_TOPIC_MAX_LENGTH: Final = 255

RETRY_GROUP_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
#: Groups of the brokers themselves (MixAll.CID_RMQ_SYS_PREFIX).
CID_RMQ_SYS_PREFIX: Final = "CID_RMQ_SYS_"
#: Group under which the delivery of delay levels counts (MixAll.SCHEDULE_CONSUMER_GROUP).
SCHEDULE_CONSUMER_GROUP: Final = "SCHEDULE_CONSUMER"
SYNC_BROKER_MEMBER_GROUP_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"

AUTO_CREATE_TOPIC_KEY_TOPIC: Final = "TBW102"
RMQ_SYS_SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
RMQ_SYS_BENCHMARK_TOPIC: Final = "BenchmarkTest"
RMQ_SYS_TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
RMQ_SYS_TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
RMQ_SYS_TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
RMQ_SYS_SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
RMQ_SYS_OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
RMQ_SYS_ROCKSDB_OFFSET_TOPIC: Final = "CHECKPOINT_TOPIC"

SYSTEM_TOPIC_SET: Final = frozenset(
    {
        AUTO_CREATE_TOPIC_KEY_TOPIC,
        RMQ_SYS_SCHEDULE_TOPIC,
        RMQ_SYS_BENCHMARK_TOPIC,
        RMQ_SYS_TRANS_HALF_TOPIC,
        RMQ_SYS_TRANS_OP_HALF_TOPIC,
        RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC,
        RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC,
        RMQ_SYS_TRACE_TOPIC,
        RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
        RMQ_SYS_SELF_TEST_TOPIC,
        RMQ_SYS_OFFSET_MOVED_EVENT,
        RMQ_SYS_ROCKSDB_OFFSET_TOPIC,
    }
)
#: Topics that clients cannot send to.
NOT_ALLOWED_SEND_TOPIC_SET: Final = frozenset(
    {
        RMQ_SYS_SCHEDULE_TOPIC,
        RMQ_SYS_TRANS_HALF_TOPIC,
        RMQ_SYS_TRANS_OP_HALF_TOPIC,
        RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
        RMQ_SYS_SELF_TEST_TOPIC,
        RMQ_SYS_OFFSET_MOVED_EVENT,
        RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC,
        RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC,
    }
)

#: Ends the name of a cluster's topic of replies (MixAll.REPLY_TOPIC_POSTFIX).
REPLY_TOPIC_POSTFIX: Final = "_REPLY_TOPIC"
#: System topics that clients use as any other.
CLIENT_SYSTEM_TOPICS: Final = frozenset({AUTO_CREATE_TOPIC_KEY_TOPIC, RMQ_SYS_BENCHMARK_TOPIC, RMQ_SYS_SELF_TEST_TOPIC})

_RULE: Final = "^[%|a-zA-Z0-9_-]+$"
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]*")


class ValidateResult(NamedTuple):
    """Result of a check; ``remark`` is the reason for an invalid name, else empty."""

    valid: bool
    remark: str


_VALID: Final = ValidateResult(True, "")


def is_topic_or_group_illegal(name: str) -> bool:
    """Return true if ``name`` contains a character that RocketMQ does not allow."""
    return _LEGAL.fullmatch(name) is None


def validate_topic(topic: str) -> ValidateResult:
    """Check if ``topic`` is a valid topic name."""
    if not topic.strip():
        return ValidateResult(False, "The specified topic is blank.")
    if is_topic_or_group_illegal(topic):
        remark = f"The specified topic: {_shown(topic)}, contains illegal characters, allowing only {_RULE}"
        return ValidateResult(False, remark)
    if topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)):
        if len(topic) > RETRY_OR_DLQ_TOPIC_MAX_LENGTH:
            what = (
                f"The specified topic is DLQ or Retry topic: {_shown(topic)}, and it's longer than topic max length: "
            )
            return ValidateResult(False, f"{what}{RETRY_OR_DLQ_TOPIC_MAX_LENGTH}")
    elif len(topic) > TOPIC_MAX_LENGTH:
        remark = f"The specified topic: {_shown(topic)}, is longer than topic max length: {TOPIC_MAX_LENGTH}"
        return ValidateResult(False, remark)
    return _VALID


def validate_group(group: str, max_length: int = GROUP_MAX_LENGTH) -> ValidateResult:
    """Check if ``group`` is a valid name of a producer or consumer group."""
    if not group.strip():
        return ValidateResult(False, "The specified group is blank.")
    if is_topic_or_group_illegal(group):
        remark = f"The specified group: {_shown(group)}, contains illegal characters, allowing only {_RULE}"
        return ValidateResult(False, remark)
    if len(group) > max_length:
        return ValidateResult(
            False, f"The specified group: {_shown(group)}, is longer than group max length: {max_length}"
        )
    return _VALID


def is_system_topic(topic: str) -> bool:
    """Return true for a system topic; a broker adds its own name, its cluster's and others."""
    return topic in SYSTEM_TOPIC_SET or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Return true for a consumer group of the brokers themselves."""
    return group.startswith(CID_RMQ_SYS_PREFIX)


def is_not_allowed_send_topic(topic: str) -> bool:
    """Return true if clients must not send to ``topic``."""
    return topic in NOT_ALLOWED_SEND_TOPIC_SET


def _shown(name: str) -> str:
    # A remark must not repeat a name of megabytes.
    return name if len(name) <= 512 else f"{name[:512]}…"


def groups_with_retry_topics(topics: Iterable[str]) -> list[str]:
    """Return the groups whose retry topics are among ``topics``, in their order.

    Names that no group can have are left out: a retry topic of POP has the names of its group and topic.
    """
    prefix = RETRY_GROUP_TOPIC_PREFIX
    names = [topic.removeprefix(prefix) for topic in topics if topic.startswith(prefix)]
    return [name for name in names if validate_group(name).valid]
