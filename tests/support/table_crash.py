"""A seeded run of administrative changes to topics and groups, and its invariants after a crash.

Several changes are under way at a time, as several administrators make them, and go through the processors: a change
that was answered with success is promised.
"""

import asyncio
import inspect
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.persist.config_manager import ConfigPersistService
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig
from rocketbroker.codec.remoting.handler import Process
from rocketbroker.codec.remoting.headers.admin import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.admin.groups import GroupRequests
from rocketbroker.processor.admin.topics import TopicRequests
from rocketbroker.store.clean.topic_deletion import TopicDeletion
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeConnection
from tests.support.processor_calls import family
from tests.support.recorded_script import Operation, RecordedScript
from tests.support.recording_file_system import Loss

NAMES = "abc"
# ``None`` for an entry that is not there, else how many queues the topic has, or retries the group.
State = int | None


class Entry(NamedTuple):
    """A row of one of the tables."""

    kind: str
    name: str


class Tried(NamedTuple):
    """A change is under way: it may be there after a crash."""

    entry: Entry
    number: int
    state: State


class Done(NamedTuple):
    """A change was answered with success: neither the state before it nor a change tried earlier comes back."""

    entry: Entry
    number: int


@dataclass
class Promised:
    """States that each entry may have, by the number of the change that made them."""

    states: dict[Entry, dict[int, State]] = field(default_factory=lambda: defaultdict(lambda: {0: None}))

    def take(self, mark: object) -> None:
        """Apply one mark."""
        match mark:
            case Tried(entry, number, state):
                self.states[entry][number] = state
            case Done(entry, done):
                states = self.states[entry]
                self.states[entry] = {number: state for number, state in states.items() if number >= done}


class _NoQueues(TopicDeletion):
    """Deletes topics that have no messages."""

    def __init__(self) -> None:
        """Needs no store."""

    async def delete_topics(self, topics: set[str]) -> int:
        return len(topics)


class TableCrashScript(RecordedScript[Promised]):
    """A run of topics and groups that are made, changed and deleted."""

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root, "", seed)
        self._persist = ConfigPersistService(self.file_system)
        self.topics, self.groups, offsets = self._tables(root, self._persist)
        stats = BrokerStatsManager(self._clock, "C")
        topics = family(
            TopicRequests,
            config=BrokerConfig(broker_ip1="127.0.0.1"),
            topics=self.topics,
            offsets=offsets,
            deletion=_NoQueues(),
            stats=stats,
        )
        self._update_topic, self._delete_topic = topics.update_and_create_topic, topics.delete_topic_in_broker
        self._update_group: Process = family(GroupRequests, groups=self.groups).update_and_create_subscriptiongroup
        self._delete_group = family(
            GroupRequests, groups=self.groups, offsets=offsets, stats=stats
        ).delete_subscriptiongroup
        self.refused: list[str] = []
        self.refused_changes: set[int] = set()

    def _tables(
        self, root: Path, persist: ConfigPersistService | None
    ) -> tuple[TopicConfigManager, SubscriptionGroupManager, ConsumerOffsetManager]:
        config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1")
        submit = None if persist is None else persist.submit
        folder = root / "config"
        return (
            TopicConfigManager(folder / "topics.json", config, self._clock, submit),
            SubscriptionGroupManager(folder / "subscriptionGroup.json", config, self._clock, submit),
            ConsumerOffsetManager(folder / "consumerOffset.json", self._clock, submit),
        )

    @property
    def _running(self) -> MessageStore:
        raise NotImplementedError

    async def _settle(self) -> None:
        """One thread writes: a seed gives one journal."""

    async def _start(self) -> None:
        await self._persist.start()

    async def stop(self) -> None:
        """Stop the writing."""
        await self._persist.stop()

    def _weighted(self) -> list[tuple[Operation, int]]:
        return [(self._several, 1)]

    async def _several(self) -> None:
        """Make one to five changes at once, some of them to the same entry."""
        changes = [self._change_topic, self._change_group, self._remove_topic, self._remove_group]
        chosen = self._chance.choices(changes, [4, 4, 2, 2], k=self._chance.randint(1, 5))
        async with asyncio.TaskGroup() as tasks:
            for change in chosen:
                tasks.create_task(change(self._chance.choice(NAMES)))

    async def _change_topic(self, name: str) -> None:
        number = next(self._numbers)
        header = CreateTopicRequestHeader(name, "TBW102", number, number, 6, "SINGLE_TAG")
        await self._do(Tried(Entry("topic", name), number, number), self._update_topic, header)

    async def _change_group(self, name: str) -> None:
        number = next(self._numbers)
        body = SubscriptionGroupConfig(name, retry_max_times=number).encode()
        await self._do(Tried(Entry("group", name), number, number), self._update_group, None, body)

    async def _remove_topic(self, name: str) -> None:
        tried = Tried(Entry("topic", name), next(self._numbers), None)
        await self._do(tried, self._delete_topic, DeleteTopicRequestHeader(name))

    async def _remove_group(self, name: str) -> None:
        tried = Tried(Entry("group", name), next(self._numbers), None)
        await self._do(tried, self._delete_group, DeleteSubscriptionGroupRequestHeader(name, clean_offset=True))

    async def _do(self, tried: Tried, process: Process, header: object, body: bytes = b"") -> None:
        self.file_system.mark(tried)
        try:
            answer = process(FakeConnection(), request(0, header, body))
            if inspect.isawaitable(answer):
                await answer
        except BrokerResponseError as error:
            self.refused.append(error.remark or "")
            self.refused_changes.add(tried.number)
        else:
            self.file_system.mark(Done(tried.entry, tried.number))

    def states(self, topics: TopicConfigManager, groups: SubscriptionGroupManager) -> dict[Entry, State]:
        """State of each entry in the tables."""
        found: dict[Entry, State] = {}
        for name in NAMES:
            topic, group = topics.topics.get(name), groups.groups.get(name)
            found[Entry("topic", name)] = None if topic is None else topic.read_queue_nums
            found[Entry("group", name)] = None if group is None else group.retry_max_times
        return found

    def is_settled(self) -> bool:
        """Return true if the disk has all that is in memory."""
        return not self._persist._changed and not self._persist._logged

    async def check(self, root: Path, promised: Promised, loss: Loss, number: int = 0) -> None:
        """Load what a crash left and compare it with the promises."""
        topics, groups, _ = self._tables(root, None)
        topics.load()
        groups.load()
        for entry, state in self.states(topics, groups).items():
            allowed = promised.states[entry]
            assert state in allowed.values(), f"{entry} is {state} after {loss}, {allowed} would be right"
