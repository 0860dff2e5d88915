"""Offsets: of consumers (14, 15), of queues (29 to 32), resets and comparisons (222, 223, 308, 314)."""

from rocketbroker.codec.remoting.custom_header import CommandCustomHeader
from rocketbroker.codec.remoting.java_types import Int, Long


class QueryConsumerOffsetRequestHeader(CommandCustomHeader, gc=False):
    """Code 14. Only ``set_zero_if_not_found`` = false rules out the answer 0 for a new group."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(CommandCustomHeader, gc=False):
    """Answer to 14."""

    offset: Long


class UpdateConsumerOffsetRequestHeader(CommandCustomHeader, gc=False):
    """Code 15. Go commits -1 for queues of which it has consumed nothing."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long


class SearchOffsetRequestHeader(CommandCustomHeader):
    """Code 29. ``timestamp`` in ms; ``boundary_type`` LOWER (the default) or UPPER."""

    topic: str
    queue_id: Int
    timestamp: Long
    boundary_type: str | None = None
    lite_topic: str | None = None


class SearchOffsetResponseHeader(CommandCustomHeader):
    """Answer to 29."""

    offset: Long


class GetMaxOffsetRequestHeader(CommandCustomHeader, gc=False):
    """Code 30. ``committed`` false: include messages that are not readable yet."""

    topic: str
    queue_id: Int
    committed: bool = True


class GetMaxOffsetResponseHeader(CommandCustomHeader, gc=False):
    """Answer to 30."""

    offset: Long


class GetMinOffsetRequestHeader(CommandCustomHeader):
    """Code 31."""

    topic: str
    queue_id: Int


class GetMinOffsetResponseHeader(CommandCustomHeader):
    """Answer to 31."""

    offset: Long


class GetEarliestMsgStoretimeRequestHeader(CommandCustomHeader):
    """Code 32."""

    topic: str
    queue_id: Int


class GetEarliestMsgStoretimeResponseHeader(CommandCustomHeader):
    """Answer to 32, in ms; -1 if nothing is stored."""

    timestamp: Long


class ResetOffsetRequestHeader(CommandCustomHeader):
    """Code 222. ``timestamp`` in ms, -1: end; ``queue_id`` -1: all queues; ``offset`` -1 or None: by time."""

    group: str
    topic: str
    timestamp: Long
    is_force: bool
    queue_id: Int = -1
    offset: Long | None = None


class GetConsumerStatusRequestHeader(CommandCustomHeader):
    """Codes 221 and 223."""

    topic: str
    group: str
    client_addr: str | None = None


class QueryCorrectionOffsetHeader(CommandCustomHeader):
    """Code 308. ``filter_groups`` comma-joined."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


class CloneGroupOffsetRequestHeader(CommandCustomHeader):
    """Code 314."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
