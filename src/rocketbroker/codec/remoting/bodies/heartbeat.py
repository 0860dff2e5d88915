"""Heartbeats of clients and their subscriptions (org.apache.rocketmq.remoting.protocol.heartbeat).

Java and Go write enums by name, C++ by ordinal with ``subVersion`` as text. Go writes ``codeSet`` as texts; do not
trust it: the codes follow from ``tagsSet``.
"""

from enum import StrEnum
from typing import Any, Self

import msgspec

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.remoting_serializable import (
    Buffer,
    RemotingSerializable,
    body_from,
    check_values,
    decode_body,
)
from rocketbroker.codec.remoting.java_types import Int, Long
from rocketbroker.common.errors import CodecError


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
    tags_set: list[str] = msgspec.field(default_factory=list)
    code_set: list[int] = msgspec.field(default_factory=list)
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ConsumerData(RemotingSerializable):
    """One group in which a client consumes."""

    group_name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: list[SubscriptionData] = msgspec.field(default_factory=list)
    unit_mode: bool = False


class ProducerData(RemotingSerializable):
    """One group in which a client produces."""

    group_name: str


class HeartbeatData(RemotingSerializable):
    """Request of HEART_BEAT (34). With ``without_sub`` a 5.x client sends a fingerprint instead of its groups."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = msgspec.field(default_factory=list)
    consumer_data_set: list[ConsumerData] = msgspec.field(default_factory=list)
    heartbeat_fingerprint: Int = 0
    without_sub: bool = False

    @classmethod
    def decode(cls, body: Buffer, *, most_values: int | None = None) -> Self:
        """Decode the heartbeat of any client.

        Raises:
            CodecError: It is not JSON, or a field is missing or of the wrong type; the text names it.
        """
        try:
            return decode_body(body, cls, most_values)
        except CodecError as error:
            if most_values is not None:
                check_values(body, cls, most_values, error)
            return body_from(_with_enum_names(fastjson.loads(body)), cls)


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
