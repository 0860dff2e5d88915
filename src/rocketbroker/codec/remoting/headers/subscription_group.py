"""Groups: GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), DELETE_SUBSCRIPTIONGROUP (207), GET_CONSUME_STATS (208), 352, 353.

UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200) and its list form (225) have bodies and no header.
"""

from rocketbroker.codec.remoting.custom_header import CommandCustomHeader
from rocketbroker.codec.remoting.java_types import Int


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
