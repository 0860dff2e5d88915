"""A stored message for tests of what the sub-commands print."""

from collections.abc import Mapping

from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import encode_properties

_HOST = bytes([127, 0, 0, 1, 0, 0, 0, 80])


def stored(
    body: bytes = b"body",
    *,
    properties: Mapping[str, str] | None = None,
    topic: str = "T",
    queue_offset: int = 5,
    store_timestamp: int = 1000,
    sys_flag: int = 0,
) -> MessageExt:
    """Return a message of queue 1."""
    return MessageExt(
        topic=topic,
        queue_id=1,
        queue_offset=queue_offset,
        commit_log_offset=512,
        store_size=100,
        body=body,
        properties_bytes=encode_properties(dict(properties or {})),
        flag=7,
        sys_flag=sys_flag,
        body_crc=3,
        born_timestamp=900,
        born_host=_HOST,
        store_timestamp=store_timestamp,
        store_host=_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_length=len(body),
        magic=0,
    )
