"""Ends of queues, read from a running broker, also for topics that no client sees."""

import asyncio

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from tests.support.java_process import JavaProcess

LIMIT = 60  # seconds
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


def queue_ends(namesrv: str, topic: str, through: str) -> dict[int, int]:
    """Return the messages by queue id, empty for an unknown topic; ``through`` is any topic of the broker."""

    async def ask() -> dict[int, int]:
        async with AdminClient(namesrv) as admin:
            try:
                stats = await admin.examine_topic_stats(topic, through)
            except BrokerResponseError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                return {}
            return {queue.queue_id: offset.max_offset for queue, offset in stats.offset_table.items()}

    return asyncio.run(ask())


def delayed(namesrv: str, through: str) -> dict[int, int]:
    """Return the messages by delay level, delivered or not, of the levels that were given any."""
    ends = queue_ends(namesrv, SCHEDULE_TOPIC, through)
    return {queue_id + 1: end for queue_id, end in sorted(ends.items()) if end}


def wait_delayed(broker: JavaProcess, namesrv: str, through: str, wanted: dict[int, int]) -> None:
    """Wait until the levels in ``wanted`` have their number of messages."""
    broker.wait_until(lambda: wanted.items() <= delayed(namesrv, through).items(), LIMIT, f"delay {wanted}")


def wait_stored(broker: JavaProcess, namesrv: str, topic: str, through: str, count: int) -> None:
    """Wait until a topic has ``count`` messages."""
    broker.wait_until(
        lambda: sum(queue_ends(namesrv, topic, through).values()) == count, LIMIT, f"store {count} in {topic}"
    )
