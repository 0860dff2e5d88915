"""Whether a queue has an offset that a group is to go to."""

from typing import Protocol

from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError


class QueueRange(Protocol):
    """What is needed of the message store."""

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Queue offset after the last readable message."""

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Queue offset of the first message there is."""


def check_offset_range(store: QueueRange, topic: str, queue_id: int, offset: int) -> None:
    """Whether there is a message at the offset, or the next one will get it.

    Raises:
        BrokerResponseError: SYSTEM_ERROR, it lies before the first message or further behind the last.
    """
    first, end = store.min_offset_in_queue(topic, queue_id), store.max_offset_in_queue(topic, queue_id)
    if not first <= offset <= end:
        remark = f"Target offset {offset} not in consume queue range [{first}-{end}]"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"{remark} of topic {topic}, queue {queue_id}")
