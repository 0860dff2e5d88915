"""Topics (17, 21, 215), groups (201, 207, 208), clients (35, 38, 40, 203, 204), brokers (26, 315, 906).

HEART_BEAT (34), CHECK_CLIENT_CONFIG (46), LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42) and
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200, 225) have bodies and no header.
"""

import msgspec

from rocketbroker.codec.java_types import Int, Long
from rocketbroker.codec.remoting.remoting_command import CommandCustomHeader


class CreateTopicRequestHeader(CommandCustomHeader):
    """Codes 17 and 513. ``perm`` is a PermName; ``attributes`` as ``+key=value,-key``."""

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class DeleteTopicRequestHeader(CommandCustomHeader):
    """Code 215."""

    topic: str


class GetAllTopicConfigRequestHeader(CommandCustomHeader):
    """Code 21: a page from ``topic_seq`` on. Clients before 5.4 send no field, and receive all topics."""

    topic_seq: Int | None = None
    data_version: str | None = None
    max_topic_num: Int | None = None


class GetAllTopicConfigResponseHeader(CommandCustomHeader):
    """Answer to 21."""

    total_topic_num: Int | None = None


class GetTopicConfigRequestHeader(CommandCustomHeader):
    """Code 351. ``lo``: only the topics of this broker itself."""

    topic: str
    lo: bool | None = None


class GetTopicStatsInfoRequestHeader(CommandCustomHeader):
    """Code 202."""

    topic: str


class QueryTopicConsumeByWhoRequestHeader(CommandCustomHeader):
    """Code 300."""

    topic: str


class QueryTopicsByConsumerRequestHeader(CommandCustomHeader):
    """Code 343."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(CommandCustomHeader):
    """Code 345."""

    group: str
    topic: str | None = None


class QueryConsumeTimeSpanRequestHeader(CommandCustomHeader):
    """Code 303."""

    topic: str
    group: str


# Groups: GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), DELETE_SUBSCRIPTIONGROUP (207), GET_CONSUME_STATS (208), 352, 353.
#
# UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200) and its list form (225) have bodies and no header.


class GetAllSubscriptionGroupRequestHeader(CommandCustomHeader):
    """Code 201: a page from ``group_seq`` on. Clients before 5.4 send no field, and receive all groups."""

    group_seq: Int | None = None
    data_version: str | None = None
    max_group_num: Int | None = None


class GetAllSubscriptionGroupResponseHeader(CommandCustomHeader):
    """Answer to 201."""

    total_group_num: Int | None = None


class GetSubscriptionGroupConfigRequestHeader(CommandCustomHeader):
    """Code 352."""

    group: str


class DeleteSubscriptionGroupRequestHeader(CommandCustomHeader):
    """Code 207."""

    group_name: str
    clean_offset: bool = False


class UpdateGroupForbiddenRequestHeader(CommandCustomHeader):
    """Code 353. ``readable`` None: only return the state."""

    group: str
    topic: str
    readable: bool | None = None


class GetConsumeStatsRequestHeader(CommandCustomHeader):
    """Code 208. ``topic`` None: all topics of the group; ``topic_list`` is joined by semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumeStatsInBrokerHeader(CommandCustomHeader):
    """Code 317."""

    is_order: bool


# Clients and groups: UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38), NOTIFY_CONSUMER_IDS_CHANGED (40), ...
#
# HEART_BEAT (34), CHECK_CLIENT_CONFIG (46), LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42) have bodies and no header.


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


class GetBrokerConfigResponseHeader(CommandCustomHeader):
    """Answer to 26: ``version`` is the DataVersion as JSON."""

    version: str


class ViewBrokerStatsDataRequestHeader(CommandCustomHeader):
    """Code 315."""

    stats_name: str
    stats_key: str


class ExchangeHAInfoRequestHeader(CommandCustomHeader):
    """Code 906: the addresses of a master that is about to register; a slave that asks for them sends none."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(CommandCustomHeader):
    """Answer of a master to 906: its addresses, and the end of its log when it started."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None
