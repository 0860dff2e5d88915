"""Check of an offset to which a group is set."""

from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore


def check_offset_range(queues: ConsumeQueueStore, topic: str, queue_id: int, offset: int) -> None:
    """Check that a message has the offset, or that the next one will get it.

    Raises:
        BrokerResponseError: SYSTEM_ERROR if it is before the first message or beyond the next one.
    """
    first, end = queues.min_offset_in_queue(topic, queue_id), queues.max_offset_in_queue(topic, queue_id)
    if not first <= offset <= end:
        remark = f"Target offset {offset} not in consume queue range [{first}-{end}]"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"{remark} of topic {topic}, queue {queue_id}")
