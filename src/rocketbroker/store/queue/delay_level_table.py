"""Tags codes of queue entries, delayed messages included (MessageStoreConfig.messageDelayLevel)."""

from rocketbroker.codec.message.delay_levels import deliver_timestamp, level_of
from rocketbroker.codec.message.message_const import PROPERTY_DELAY_TIME_LEVEL
from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.tags_code import tags_code_bytes
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface

_DELAY = PROPERTY_DELAY_TIME_LEVEL.encode()


def tags_code_of(
    queue: ConsumeQueueInterface, levels: dict[int, int], raw: bytes, tags: bytes | None, store_timestamp: int
) -> int:
    """Return the tags code of a queue entry: the hash of the tags, or the due time (ms) in the schedule topic."""
    if not queue.schedule:
        return tags_code_bytes(tags)
    return deliver_timestamp(levels, level_of(get_property(raw, _DELAY) or b""), store_timestamp)
