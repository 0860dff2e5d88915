"""Selection of the queue for a message (TopicPublishInfo.selectOneMessageQueue, SelectMessageQueueByHash)."""

import itertools
import random
from collections.abc import Callable, Collection, Iterator, Sequence

from rocketbroker.client.message import Message
from rocketbroker.codec.message.message_ext import MessageQueue

# Chooses one of a topic's writable queues for a message (MessageQueueSelector).
QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]


class RoundRobin:
    """Takes the queues of each topic in turn, from a random one on."""

    def __init__(self) -> None:
        self._turns: dict[str, Iterator[int]] = {}

    def select(self, queues: Sequence[MessageQueue], avoided: Collection[str | None] = ()) -> MessageQueue:
        """Return the next queue, if possible one of no avoided broker.

        Args:
            queues: the writable queues of one topic; at least one.
            avoided: names of brokers.
        """
        turns = self._turns.get(queues[0].topic)
        if turns is None:
            turns = self._turns[queues[0].topic] = itertools.count(random.randrange(len(queues)))
        for _ in queues:
            queue = queues[next(turns) % len(queues)]
            if queue.broker_name not in avoided:
                return queue
        return queues[next(turns) % len(queues)]


def select_by_hash(sharding_key: str) -> QueueSelector:
    """Return a selector that sends equal keys to the same queue (SelectMessageQueueByHash)."""
    from rocketbroker.codec.message.tags_code import java_hash

    value = abs(java_hash(sharding_key))
    return lambda queues, _message: queues[value % len(queues)]
