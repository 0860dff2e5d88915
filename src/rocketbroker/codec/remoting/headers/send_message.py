"""Sending: SEND_MESSAGE (10, _V2 310), SEND_BATCH_MESSAGE (320), replies (324, 325, 326), CONSUMER_SEND_MSG_BACK (36).

The two request headers carry the same values under different names on the wire. Their attributes are equal and in equal
order, so that one handler serves both.
"""

import msgspec

from rocketbroker.codec.remoting.custom_header import CommandCustomHeader
from rocketbroker.codec.remoting.java_types import Int, Long


class SendMessageRequestHeader(CommandCustomHeader, gc=False):
    """Codes 10 and 324. ``born_timestamp`` in ms; ``properties`` as in message records."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: Int | None = None
    broker_name: str | None = msgspec.field(name="bname", default=None)


class SendMessageRequestHeaderV2(CommandCustomHeader, gc=False):
    """Codes 310, 320 and 325: SendMessageRequestHeader under one-letter names."""

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: Int = msgspec.field(name="d")
    queue_id: Int = msgspec.field(name="e")
    sys_flag: Int = msgspec.field(name="f")
    born_timestamp: Long = msgspec.field(name="g")
    flag: Int = msgspec.field(name="h")
    properties: str = msgspec.field(name="i", default="")
    reconsume_times: Int = msgspec.field(name="j", default=0)
    unit_mode: bool = msgspec.field(name="k", default=False)
    batch: bool = msgspec.field(name="m", default=False)
    max_reconsume_times: Int | None = msgspec.field(name="l", default=None)
    broker_name: str | None = msgspec.field(name="n", default=None)


class SendMessageResponseHeader(CommandCustomHeader, gc=False):
    """Answer to a send. ``msg_id``: offset message id, comma-joined for a batch; ``queue_offset``: of the first."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class ReplyMessageRequestHeader(CommandCustomHeader, gc=False):
    """Code 326, broker to requesting client. Times in ms; hosts as ``ip:port``."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    born_host: str
    store_host: str
    store_timestamp: Long
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False


class ConsumerSendMsgBackRequestHeader(CommandCustomHeader, gc=False):
    """Code 36. ``offset``: in the CommitLog; ``delay_level`` < 0: to the dead letters, 0: by the number of retries."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


class RecallMessageRequestHeader(CommandCustomHeader, gc=False):
    """Code 370."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponseHeader(CommandCustomHeader, gc=False):
    """Answer to code 370: the unique id of the message."""

    msg_id: str
