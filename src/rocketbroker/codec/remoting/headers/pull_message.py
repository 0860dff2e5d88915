"""Fetching: PULL_MESSAGE (11), LITE_PULL_MESSAGE (361), VIEW_MESSAGE_BY_ID (33)."""

from rocketbroker.codec.remoting.custom_header import CommandCustomHeader
from rocketbroker.codec.remoting.java_types import Int, Long


class PullMessageRequestHeader(CommandCustomHeader, gc=False):
    """Codes 11 and 361. ``sys_flag`` is a PullSysFlag; ``commit_offset`` may be -1; ``sub_version`` in ms (Go: ns)."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    sub_version: Long
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    request_source: Int | None = None
    proxy_froward_client_id: str | None = None
    lite_topic: str | None = None


class PullMessageResponseHeader(CommandCustomHeader, gc=False):
    """Answer to 11 and 361."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None


class ViewMessageRequestHeader(CommandCustomHeader, gc=False):
    """Code 33. ``offset`` is a commit-log offset."""

    offset: Long
    topic: str | None = None
