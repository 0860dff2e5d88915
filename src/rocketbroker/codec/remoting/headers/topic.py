"""Topics: UPDATE_AND_CREATE_TOPIC (17), GET_ALL_TOPIC_CONFIG (21), DELETE_TOPIC_IN_BROKER (215), ..."""

from rocketbroker.codec.remoting.custom_header import CommandCustomHeader
from rocketbroker.codec.remoting.java_types import Int


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
