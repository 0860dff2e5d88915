"""Queries: QUERY_MESSAGE (12), QUERY_CONSUME_QUEUE (321)."""

import msgspec

from rocketbroker.codec.remoting.custom_header import CommandCustomHeader
from rocketbroker.codec.remoting.java_types import Int, Long


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
