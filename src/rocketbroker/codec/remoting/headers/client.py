"""Clients and groups: UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38), NOTIFY_CONSUMER_IDS_CHANGED (40), ...

HEART_BEAT (34), CHECK_CLIENT_CONFIG (46), LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42) have bodies and no header.
"""

import msgspec

from rocketbroker.codec.remoting.custom_header import CommandCustomHeader
from rocketbroker.codec.remoting.java_types import Int


class UnregisterClientRequestHeader(CommandCustomHeader):
    """Code 35. C++ sends an empty text for the group that it is not in."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(CommandCustomHeader):
    """Code 38."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(CommandCustomHeader):
    """Code 40, broker to client."""

    consumer_group: str


class GetConsumerConnectionListRequestHeader(CommandCustomHeader):
    """Code 203."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(CommandCustomHeader):
    """Code 204."""

    producer_group: str


class GetAllProducerInfoRequestHeader(CommandCustomHeader):
    """Code 328: no fields."""


class GetConsumerRunningInfoRequestHeader(CommandCustomHeader):
    """Code 307, to the broker and on to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(CommandCustomHeader):
    """Code 309, to the broker and on to the client."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
