"""Queues of topics by broker (topicQueueTable of RouteInfoManager).

Each broker name has a table, so that a registration of many thousand topics is one swap.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from msgspec.structs import replace

from rocketbroker.codec.remoting.bodies.route import QueueData
from rocketbroker.codec.remoting.bodies.topic_config import TopicQueueMappingInfo
from rocketbroker.common.errors import shown

log = logging.getLogger(__name__)

SYS_FLAG_UNIT = 1
SYS_FLAG_UNIT_SUB = 2
_MOST_NAMED = 5


@dataclass(slots=True)
class _BrokerTopics:
    queues: dict[str, QueueData] = field(default_factory=dict)
    mappings: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)


class TopicQueueTable:
    """Queues, and the logical queues of static topics, by broker name and topic.

    Args:
        on_change: called with the topics whose queues changed.
    """

    def __init__(self, on_change: Callable[[Iterable[str]], None]) -> None:
        self._on_change = on_change
        self._brokers: dict[str, _BrokerTopics] = {}
        # Names of the brokers by topic, so that a route does not look through the tables of 1,000 brokers. They are
        # keys of a dict: a broker is removed from 10,000 topics at a time, and a list would be searched for each.
        self._holders: dict[str, dict[str, None]] = {}

    def topics(self) -> list[str]:
        """Return all topics."""
        return list(self._holders)

    def topics_of(self, broker_names: Iterable[str]) -> list[str]:
        """Return the topics with queues on one of the brokers, each once."""
        names = list(broker_names)
        if self._brokers.keys() <= set(names):
            return self.topics()
        return list(dict.fromkeys(chain.from_iterable(map(self.queues_of, names))))

    def queues(self, topic: str) -> dict[str, QueueData]:
        """Return the queues of a topic by broker name; empty for an unknown topic."""
        return {name: self._brokers[name].queues[topic] for name in self._holders.get(topic, ())}

    def queues_of(self, broker_name: str) -> Mapping[str, QueueData]:
        """Return the queues of a broker by topic; read-only."""
        held = self._brokers.get(broker_name)
        return {} if held is None else held.queues

    def mappings(self, topic: str) -> dict[str, TopicQueueMappingInfo]:
        """Return the logical queues of a static topic by the name of a broker that has queues of it."""
        held = ((name, self._brokers[name].mappings) for name in self._holders.get(topic, ()))
        return {name: mappings[topic] for name, mappings in held if topic in mappings}

    def entries(self) -> int:
        """Return the number of topics of all brokers plus logical queues of static topics."""
        mapped = (info for held in self._brokers.values() for info in held.mappings.values())
        topics = sum(len(held.queues) for held in self._brokers.values())
        return topics + sum(len(info.curr_id_map) for info in mapped)

    def topics_by_flag(self, *, with_flag: int, without_flag: int = 0) -> list[str]:
        """Return the topics whose first queues have one system flag and lack another."""
        first: dict[str, QueueData] = {}
        for held in reversed(self._brokers.values()):
            first.update(held.queues)
        return [topic for topic, queues in first.items() if _has(queues, with_flag, without_flag)]

    def put(self, topic: str, queues: QueueData) -> None:
        """Set the queues of a topic on one broker."""
        held = self._brokers.setdefault(queues.broker_name, _BrokerTopics())
        if held.queues.get(topic) == queues:
            return
        log.info("topic %s has new queues: %s", shown(topic), queues)
        if topic not in held.queues:
            self._holders.setdefault(topic, {})[queues.broker_name] = None
        held.queues[topic] = queues
        self._on_change([topic])

    def replace(self, broker_name: str, queues: dict[str, QueueData]) -> None:
        """Set the queues of all topics on one broker."""
        held = self._brokers.setdefault(broker_name, _BrokerTopics())
        if held.queues == queues:
            return
        come, gone = queues.keys() - held.queues.keys(), held.queues.keys() - queues.keys()
        text = "broker %s has %d topics: %d new%s, %d removed%s"
        log.info(text, shown(broker_name), len(queues), len(come), _named(come), len(gone), _named(gone))
        changed = [topic for topic, data in queues.items() if held.queues.get(topic) != data]
        held.queues = queues
        for topic in changed:
            if topic in come:
                self._holders.setdefault(topic, {})[broker_name] = None
        self._drop(broker_name, gone)
        self._on_change([*changed, *gone])

    def _drop(self, broker_name: str, topics: Iterable[str]) -> None:
        for topic in topics:
            holders = self._holders[topic]
            del holders[broker_name]
            if not holders:
                del self._holders[topic]

    def map(self, broker_name: str, mappings: dict[str, TopicQueueMappingInfo]) -> None:
        """Set the logical queues of some static topics on one broker."""
        if mappings:
            self._brokers.setdefault(broker_name, _BrokerTopics()).mappings.update(mappings)
            self._on_change(mappings)

    def delete(self, topic: str, broker_names: Iterable[str] | None = None) -> None:
        """Forget a topic, or its queues on some brokers."""
        holders = self._holders.get(topic, ())
        gone = list(holders) if broker_names is None else [name for name in broker_names if name in holders]
        for name in gone:
            del self._brokers[name].queues[topic]
            self._drop(name, [topic])
        if gone:
            log.info("topic %s no longer has queues on %d brokers%s", shown(topic), len(gone), _named(gone))
            self._on_change([topic])

    def delete_broker(self, broker_name: str) -> None:
        """Forget all queues of a broker."""
        held = self._brokers.pop(broker_name, None)
        if held is not None:
            self._drop(broker_name, held.queues)
            self._on_change(held.queues.keys() | held.mappings.keys())

    def set_permission(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Change the permission of all queues of a broker; return the number of topics."""
        table = self.queues_of(broker_name)
        # Topics share their queues' data: there are few different ones.
        changed = {data: replace(data, perm=change(data.perm)) for data in set(table.values())}
        if changed:
            self._brokers[broker_name].queues = {topic: changed[data] for topic, data in table.items()}
            self._on_change(table)
        return len(table)


def _named(names: Iterable[str]) -> str:
    some = [shown(name) for name, _ in zip(names, range(_MOST_NAMED), strict=False)]
    return f" ({', '.join(some)}{', ...' if len(some) == _MOST_NAMED else ''})" if some else ""


def _has(queues: QueueData, with_flag: int, without_flag: int) -> bool:
    return bool(queues.topic_sys_flag & with_flag) and not queues.topic_sys_flag & without_flag
