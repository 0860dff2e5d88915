"""POP consumption: POP_MESSAGE (200050) and what follows it (200051 to 200055).

A pop hides messages from the group for ``invisible_time``. Its handle, ``extra_info``, is the text of property
``POP_CK`` (``codec.message.pop_info``); whoever holds it acknowledges the message or moves the end of that time.
Times are in ms.
"""

import msgspec

from rocketbroker.codec.java_types import Int, Long
from rocketbroker.codec.remoting.remoting_command import CommandCustomHeader


class PopMessageRequestHeader(CommandCustomHeader, gc=False):
    """Code 200050. ``queue_id`` -1: all queues; ``init_mode`` of a new group 0: first message, 1: new messages."""

    consumer_group: str
    topic: str
    queue_id: Int
    max_msg_nums: Int
    invisible_time: Long
    poll_time: Long
    born_time: Long
    init_mode: Int
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None
    broker_name: str | None = msgspec.field(name="bname", default=None)


class PopMessageResponseHeader(CommandCustomHeader, gc=False):
    """Answer to 200050 and 200052; ``rest_num``: readable messages that were left."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int
    rest_num: Long
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequestHeader(CommandCustomHeader, gc=False):
    """Code 200051. ``topic``: the one that stores the message, which may be the retry topic."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    lite_topic: str | None = None
    broker_name: str | None = msgspec.field(name="bname", default=None)


class ChangeInvisibleTimeRequestHeader(CommandCustomHeader, gc=False):
    """Code 200053. ``invisible_time`` counts from now; with ``suspend`` the redelivery is not counted as a retry."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_time: Long
    lite_topic: str | None = None
    suspend: bool = False
    broker_name: str | None = msgspec.field(name="bname", default=None)


class ChangeInvisibleTimeResponseHeader(CommandCustomHeader, gc=False):
    """Answer to 200053: with offset and queue of the request, the parts of the new handle."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int


class NotificationRequestHeader(CommandCustomHeader, gc=False):
    """Code 200054: wait until there is a message to pop."""

    consumer_group: str
    topic: str
    queue_id: Int
    poll_time: Long
    born_time: Long
    order: bool = False
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponseHeader(CommandCustomHeader, gc=False):
    """Answer to 200054."""

    has_msg: bool
    polling_full: bool = False


class PollingInfoRequestHeader(CommandCustomHeader):
    """Code 200055."""

    consumer_group: str
    topic: str
    queue_id: Int


class PollingInfoResponseHeader(CommandCustomHeader):
    """Answer to 200055: number of requests that are held."""

    polling_num: Int


class PeekMessageRequestHeader(CommandCustomHeader):
    """Code 200052: read messages without hiding them."""

    topic: str
    queue_id: Int
    max_msg_nums: Int
    consumer_group: str
