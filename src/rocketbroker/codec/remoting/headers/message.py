"""Messages and offsets.

Sends (10, 36, 310, 320, 324 to 326, 370), transactions (37, 39, 323), pulls (11, 361), queries (12, 33, 321), offsets
of consumers and queues (14, 15, 29 to 32, 222, 223, 308, 314).
"""

from typing import Final

import msgspec

from rocketbroker.codec.java_types import Int, Long
from rocketbroker.codec.remoting.remoting_command import CommandCustomHeader

# Sending: SEND_MESSAGE (10, _V2 310), SEND_BATCH_MESSAGE (320), replies (324, 325, 326), CONSUMER_SEND_MSG_BACK (36).
#
# The two request headers carry the same values under different names on the wire. Their attributes are equal and in
# equal order, so that one handler serves both.


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


class EndTransactionRequestHeader(CommandCustomHeader, gc=False):
    """Code 37. ``commit_or_rollback``: 8 commit, 12 rollback, 0 unknown; the offsets are the half message's."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool = False
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(CommandCustomHeader, gc=False):
    """Code 39, broker to producer."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = msgspec.field(name="bname", default=None)


class ResumeCheckHalfMessageRequestHeader(CommandCustomHeader):
    """Code 323."""

    topic: str | None = None
    msg_id: str | None = None


# The pull carries an offset to commit.
FLAG_COMMIT_OFFSET: Final = 0x1
# The pull may be held until a message arrives.
FLAG_SUSPEND: Final = 0x2
# The pull carries its subscription, which replaces that of the group's heartbeats.
FLAG_SUBSCRIPTION: Final = 0x4
# A filter server filters (3.x and 4.x), not the consumer itself.
FLAG_CLASS_FILTER: Final = 0x8


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


class QueryMessageRequestHeader(CommandCustomHeader):
    """Code 12. Times in ms; ``index_type`` K key, U unique key, T tag; older clients set ``unique_key_query``."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = None
    last_key: str | None = None
    unique_key_query: bool = msgspec.field(name="_UNIQUE_KEY_QUERY", default=False)


class QueryMessageResponseHeader(CommandCustomHeader):
    """Answer to 12: last update of the index (ms, CommitLog offset)."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class QueryConsumeQueueRequestHeader(CommandCustomHeader):
    """Code 321: ``count`` entries from queue offset ``index`` on."""

    topic: str
    queue_id: Int = 0
    index: Long = 0
    count: Int = 0
    consumer_group: str | None = None


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
