"""Result of a query by key (org.apache.rocketmq.store.QueryMessageResult)."""

import msgspec


class QueryMessageResult(msgspec.Struct):
    """Records, newest first, and the progress of the index: store time in ms and CommitLog offset."""

    records: list[bytes]
    index_last_update_timestamp: int
    index_last_update_physical_offset: int
