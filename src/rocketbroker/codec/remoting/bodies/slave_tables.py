"""Tables that slaves fetch beside topics, groups and offsets: timer metrics (61) and message request modes (402)."""

from enum import StrEnum

import msgspec

from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.java_types import Int, Long


class TimerMetric(RemotingSerializable):
    """Number of waiting timer messages of a topic, and the time in ms of its last change."""

    count: Long = 0
    time_stamp: Long = 0


class TimerMetricsSerializeWrapper(RemotingSerializable):
    """Answer to GET_TIMER_METRICS (61) and ``config/timermetrics``, by topic."""

    timing_count: dict[str, TimerMetric] = msgspec.field(default_factory=dict)
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class MessageRequestMode(StrEnum):
    """Delivery mode of a group for a topic."""

    PULL = "PULL"
    POP = "POP"


class SetMessageRequestModeRequestBody(RemotingSerializable):
    """Message request mode of one group for one topic."""

    topic: str | None = None
    consumer_group: str | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: Int = 0


class MessageRequestModeSerializeWrapper(RemotingSerializable):
    """Answer to GET_ALL_MESSAGE_REQUEST_MODE (402) and messageRequestMode.json, by topic and group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = msgspec.field(
        default_factory=dict
    )
