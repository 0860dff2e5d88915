"""Answers to requests that change a table or depend on a change, once it is on disk and registered, or undone."""

import asyncio
from collections.abc import Awaitable, Iterable
from functools import partial

from rocketbroker.broker.persist.config_manager import Settled
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.commitlog.put_message import (
    ACKNOWLEDGED,
    Acknowledgement,
    OnAcknowledged,
    PutMessageStatus,
    Wait,
)

UNDONE = "the change is undone; free space on the disk, or make it writable, then try again"


async def wait_settled(changes: Iterable[Settled | None], consequence: str = UNDONE) -> None:
    """Wait until changes are on disk, and registered if name servers must know them.

    Args:
        changes: futures of the changes; ``None`` needs no waiting.
        consequence: consequence of a failed write, for the remark.

    Raises:
        BrokerResponseError: SYSTEM_ERROR if one of them could not be written.
    """
    for change in {change for change in changes if change is not None}:
        # Not awaited itself: the future is shared, and a request that is cancelled must not cancel it.
        await asyncio.wait([change])
        if reason := change.result():
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"{reason}: {consequence}")


def answer_when_settled(changes: Iterable[Settled | None], answer: Command) -> Command | Awaitable[Command]:
    """Answer at once if no change is pending; raise the error of ``wait_settled``."""
    waits = [change for change in changes if change is not None]
    return _answer_when_settled(waits, answer) if waits else answer


async def _answer_when_settled(waits: Iterable[Settled], answer: Command) -> Command:
    await wait_settled(waits)
    return answer


def topic_waits(topics: TopicConfigManager, *queues: tuple[str, int]) -> list[Wait]:
    """Return the waits for those topics of ``queues`` (topic and number) that are not on disk or not registered."""
    found = ((queue, topics.settled(queue[0])) for queue in queues)
    return [partial(_when_created, topics, *queue, settled) for queue, settled in found if settled is not None]


def _when_created(
    topics: TopicConfigManager, topic: str, queue_id: int, settled: Settled, tell: OnAcknowledged
) -> None:
    def created(settled: Settled) -> None:
        if (reason := settled.result()) and not topics.has_on_disk(topic, queue_id):
            remark = f"topic[{topic[:127]}] cannot be created: {reason}; the message is not acknowledged"
            tell(Acknowledgement(PutMessageStatus.TOPIC_NOT_CREATED, remark))
        else:
            tell(ACKNOWLEDGED)

    settled.add_done_callback(created)
