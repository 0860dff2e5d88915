"""Which brokers hold how many queues of which topic (topicQueueTable of RouteInfoManager)."""

import logging
from collections.abc import Callable, Iterable

from rocketbroker.codec.remoting.bodies.route import QueueData
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.perm_name import PERM_WRITE

log = logging.getLogger(__name__)

SYS_FLAG_UNIT = 1
SYS_FLAG_UNIT_SUB = 2


class TopicQueueTable:
    """Queues by topic and broker name.

    Args:
        on_change: called with a topic when its queues changed.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._on_change = on_change
        self._table: dict[str, dict[str, QueueData]] = {}

    def topics(self) -> list[str]:
        """All topics."""
        return list(self._table)

    def queues(self, topic: str) -> dict[str, QueueData]:
        """The queues of a topic by broker name, empty when it is unknown; not to be changed."""
        return self._table.get(topic, {})

    def topics_of_broker(self, broker_name: str) -> list[str]:
        """The topics that have queues on a broker."""
        return [topic for topic, queues in self._table.items() if broker_name in queues]

    def topics_by_flag(self, *, with_flag: int, without_flag: int = 0) -> list[str]:
        """The topics whose first queues have one system flag and lack another."""
        return [topic for topic, queues in self._table.items() if _has(queues, with_flag, without_flag)]

    def put(self, topic: str, queues: QueueData) -> None:
        """Set the queues of a topic on one broker."""
        by_broker = self._table.setdefault(topic, {})
        if by_broker.get(queues.broker_name) == queues:
            return
        log.info("topic %s has new queues: %s", topic, queues)
        by_broker[queues.broker_name] = queues
        self._on_change(topic)

    def delete(self, topic: str, broker_names: Iterable[str] | None = None) -> None:
        """Forget a topic, or its queues on some brokers."""
        by_broker = self._table.get(topic)
        if by_broker is None:
            return
        gone = list(by_broker) if broker_names is None else [name for name in broker_names if name in by_broker]
        for name in gone:
            del by_broker[name]
        if not by_broker:
            del self._table[topic]
        if gone:
            log.info("topic %s has no queues any more on %s", topic, ", ".join(gone))
            self._on_change(topic)

    def delete_broker(self, broker_name: str) -> None:
        """Forget all queues of a broker."""
        for topic in self.topics_of_broker(broker_name):
            self.delete(topic, [broker_name])

    def set_permission(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Change the permission of all queues of a broker; gives how many topics that were."""
        topics = self.topics_of_broker(broker_name)
        for topic in topics:
            queues = self._table[topic][broker_name]
            queues.perm = change(queues.perm)
            self._on_change(topic)
        return len(topics)


def _has(queues: dict[str, QueueData], with_flag: int, without_flag: int) -> bool:
    flags = next(iter(queues.values())).topic_sys_flag
    return bool(flags & with_flag) and not flags & without_flag


def queue_data(broker_name: str, config: TopicConfig, *, writable: bool) -> QueueData:
    """What the route says of a topic's queues on one broker."""
    return QueueData(
        broker_name=broker_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm if writable else config.perm & ~PERM_WRITE,
        topic_sys_flag=config.topic_sys_flag,
    )
