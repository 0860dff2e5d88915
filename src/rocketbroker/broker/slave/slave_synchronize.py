"""Copies of the master's tables on a slave (org.apache.rocketmq.broker.slave.SlaveSynchronize).

Each table is fetched whole, checked, and then taken over in one step. A failed, broken or partial answer changes
nothing, and neither does an invalid entry. Consumer filters need no request: consumers send their heartbeats to
slaves as well.

Topics and groups are taken over at once. Progress of consumers and of deliveries waits until the own log has all that
it counts (``master_progress.py``).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Container, Iterable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager, OffsetTable
from rocketbroker.broker.persist.config_manager import ConfigManager, OnPersist
from rocketbroker.broker.registration.namesrv_link import Master, MasterAddress
from rocketbroker.broker.schedule_message_service import ScheduleMessageService
from rocketbroker.broker.slave.master_client import LogState, MasterClient
from rocketbroker.broker.slave.master_progress import MasterProgress, MasterProgressGate, OffsetReturn
from rocketbroker.broker.timer.timer_message_store import TimerMessageStore
from rocketbroker.broker.topic.message_request_mode_manager import MessageRequestModeManager
from rocketbroker.broker.topic.subscription_group_manager import BUILT_IN_GROUPS, SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.topic_validator import LEGACY_GROUP_MAX_LENGTH, validate_group, validate_topic
from rocketbroker.codec.remoting.bodies.offset import TimerMetricsSerializeWrapper
from rocketbroker.codec.remoting.bodies.pop import SetMessageRequestModeRequestBody
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import CodecError, RemotingError
from rocketbroker.common.lifecycle import TaskOwner

log = logging.getLogger(__name__)

INTERVAL_S: Final = 10.0
LOOK_S: Final = 1.0
_MOST_LEVELS: Final = 255
_MOST_QUEUES: Final = 65_536

K = TypeVar("K")
V = TypeVar("V")


class TimerMetrics(ConfigManager[TimerMetricsSerializeWrapper]):
    """Timer messages by topic (``config/timermetrics``) that a slave keeps for its master; a master counts its own.

    Attributes:
        content: the table.
    """

    def __init__(self, path: Path, on_persist: OnPersist | None = None) -> None:
        super().__init__(path, on_persist)
        self.content = TimerMetricsSerializeWrapper()

    def follow(self, content: TimerMetricsSerializeWrapper) -> None:
        """Replace the table by the master's, and write it; keep it if the master has none, as after a loss."""
        if content not in (self.content, TimerMetricsSerializeWrapper()):
            self.content = content
            self.persist()

    def encode(self) -> bytes:
        """Return the content of the file, on one line as RocketMQ writes it."""
        return self.content.encode()

    def parse(self, data: bytes) -> TimerMetricsSerializeWrapper:
        """Parse the content of a file."""
        return TimerMetricsSerializeWrapper.decode(data)

    def count(self, _file: TimerMetricsSerializeWrapper) -> int:
        """Return 1: an empty table is as good as any."""
        return 1

    def take(self, file: TimerMetricsSerializeWrapper) -> None:
        """Replace the table by that of a file."""
        self.content = file


class MasterNames:
    """Tells what a master deleted from what it lost.

    A name is deleted if the master had it and has it no longer. A master whose version went back, or that has none of a
    slave's own entries at its first request, was restarted without its tables: then nothing is deleted.

    Args:
        title: the table in log lines, such as ``topics``.
        built_in: names that each broker has by itself, and that are never deleted.
    """

    def __init__(self, title: str, built_in: Container[str] = ()) -> None:
        self._title = title
        self._built_in = built_in
        self._names: frozenset[str] = frozenset()
        self._version: DataVersion | None = None
        self._keeps = False

    def gone(
        self,
        own: Collection[str],
        own_version: DataVersion,
        names: Collection[str],
        version: DataVersion,
        in_use: Container[str] = (),
    ) -> list[str]:
        """Note the master's names and version; return those of this broker's names that it deleted.

        At the first request names in use stay: the master may have lost them, and have got some of its entries again.
        """
        is_first = self._version is None
        before = own_version if self._version is None else self._version
        had = own if is_first else self._names
        has_lost = _number(before) > _number(version)
        if is_first and not any(name in own for name in names if name not in self._built_in):
            has_lost = True
        missing = [name for name in had if name not in names and name not in self._built_in]
        self._names, self._version = frozenset(names), version.copy()
        if missing and has_lost:
            text = (
                "SlaveSynchronize: the master lacks %d of this slave's %s, such as %s, and its table is older or empty:"
                " they are kept; if the master lost its config folder, stop it and restore the folder from this slave"
            )
            log.error(text, len(missing), self._title, missing[0])
            self._keeps = True
            return []
        self._keeps = self._keeps and any(name not in names and name not in self._built_in for name in own)
        if is_first and (used := [name for name in missing if name in in_use]):
            text = (
                "SlaveSynchronize: the master lacks %d of this slave's %s that have messages here, such as %s: they "
                "are kept; if the master lost them, create them there; if it deleted them, delete them here too"
            )
            log.warning(text, len(used), self._title, used[0])
        return [name for name in missing if not (is_first and name in in_use)]

    def version(self, own: DataVersion, version: DataVersion) -> DataVersion:
        """Return the version for this broker's table after ``gone``: the master's, unless lost names are kept.

        Then it is one above all that the master will have, so that a restart does not take them for deleted.
        """
        if not self._keeps:
            return version
        return DataVersion(own.timestamp, own.counter, max(own.state_version, version.state_version + 1))


def _number(version: DataVersion) -> tuple[int, int]:
    return version.state_version, version.counter


class FollowedTables(NamedTuple):
    """Tables that follow the master's."""

    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    schedule: ScheduleMessageService
    timer: TimerMessageStore
    request_modes: MessageRequestModeManager
    timer_metrics: TimerMetrics


class SlaveSynchronize:
    """Fetches the master's tables every ``INTERVAL_S``, and at once from a new master or after a new topic's message.

    Args:
        gate: holds progress back.
        register: registers this broker again, to learn of a master.
        stored_topics: returns the topics that have messages in this broker's store.
        other_log: returns why the master's log may not continue this broker's, empty if it does; until then only the
            master's answer counts.
        is_acting: returns true while this broker acts as master, and makes its own progress of deliveries.
        follow_users: takes over the master's users and policies, if there is access control.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that a copy depends on
        self,
        master: MasterAddress,
        client: MasterClient,
        tables: FollowedTables,
        gate: MasterProgressGate,
        clock: Clock,
        register: Callable[[], object],
        stored_topics: Callable[[], Collection[str]],
        other_log: Callable[[], str] = str,
        is_acting: Callable[[], bool] = bool,
        follow_users: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._master = master
        self._client = client
        self._tables = tables
        self._gate = gate
        self._clock = clock
        self._register = register
        self._stored_topics = stored_topics
        self._other_log = other_log
        self._is_acting = is_acting
        self._follow_users = follow_users
        self._topic_names = MasterNames("topics", tables.topics.system_topics)
        self._group_names = MasterNames("consumer groups", BUILT_IN_GROUPS)
        self._offset_return = OffsetReturn(tables.offsets, client)
        # Progress that this round fetches.
        self._fetched = MasterProgress(LogState("", 0))
        # Consumer offsets taken over last, and the process that had them.
        self._offsets_before: tuple[str, OffsetTable] = "", {}
        # Topics with messages that no table of the master had so far.
        self._unknown: set[str] = set()
        # Last log text of each table that could not be followed.
        self._logged: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._tasks = TaskOwner("SlaveSynchronize")
        master.on_change(self._master_changed)

    async def start(self) -> None:
        """Start following; the tables must be loaded."""
        self._tables.offsets.keep_commits()
        self._tasks.forever(self._run, "run")

    async def stop(self) -> None:
        await self._tasks.stop()

    def look_again(self) -> None:
        """Fetch the tables now, or learn at least if the master answers."""
        self._wake.set()

    def _master_changed(self, _master: Master) -> None:
        self._gate.clear()
        self._wake.set()

    def _look_for_topics(self) -> None:
        """Fetch the tables when the log has brought messages of a topic that is not known yet."""
        known = self._tables.topics.topics
        unknown = {topic for topic in self._stored_topics() if topic not in known}
        if not unknown <= self._unknown:
            self._wake.set()
        self._unknown = unknown

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._master.master.address and not self._is_acting():
                await self.sync_all()
            else:
                self._gate.clear()
                self._register()
            await self._pause()

    async def _pause(self) -> None:
        """Wait for the next round; look for topics meanwhile, and for progress that the log covers by then."""
        loop = asyncio.get_running_loop()
        end = loop.time() + INTERVAL_S
        while not self._wake.is_set() and (left_s := end - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(LOOK_S, left_s)):
                    await self._wake.wait()
            except TimeoutError:
                self._look_for_topics()
                try:
                    await self._take_over_progress()
                except (RemotingError, CodecError) as error:
                    # The next round tries again, and logs the failure.
                    log.debug("SlaveSynchronize: no progress is taken over: %s", error)

    async def sync_all(self) -> None:
        """Fetch all tables once; a table that fails is logged, and keeps its content."""
        address = self._master.master.address
        steps: Iterable[tuple[str, Callable[[], Awaitable[object]]]] = (
            ("topics", self._sync_topics),
            ("consumer groups", self._sync_groups),
            *([] if self._follow_users is None else [("users and policies", self._follow_users)]),
            ("log offsets", self._begin_progress),
            ("consumer offsets", self._fetch_offsets),
            ("delay offsets", self._fetch_delay_offsets),
            ("message request modes", self._sync_message_request_modes),
            ("timer checkpoint", self._fetch_timer_checkpoint),
            ("timer metrics", self._sync_timer_metrics),
            ("log offsets", self._end_progress),
            ("progress", self._take_over_progress),
        )
        if reason := self._other_log():
            self._waits(reason)
            steps = [("delay offsets", self._client.delay_offsets)]
        else:
            self._worked("tables")
        for title, step in steps:
            try:
                await step()
            except CodecError as error:
                self._failed(title, f"the {title} of the master are not taken over: {error}")
            except RemotingError as error:
                self._master.answers = False
                self._failed("master", f"the master {address} does not answer: {error}")
                return
            else:
                self._worked(title)
        self._master.answers = True
        if self._logged.pop("master", ""):
            log.info("SlaveSynchronize: the master %s answers again", self._master.master.address)

    async def _sync_topics(self) -> None:
        answer = await self._client.topics()
        table, topics = answer.topic_config_table, self._tables.topics
        names, stored = self._topic_names, self._stored_topics()
        gone = names.gone(topics.topics, topics.data_version, table, answer.data_version, stored)
        valid = self._valid("topics", table, self._topic_fault)
        topics.follow(valid, gone, names.version(topics.data_version, answer.data_version))
        for name in gone:
            self._tables.offsets.remove_topic(name)
        if gone:
            # It may have offsets from before the deletion.
            self._gate.clear()

    async def _sync_groups(self) -> None:
        answer = await self._client.groups()
        table, groups = answer.subscription_group_table, self._tables.groups
        gone = self._group_names.gone(groups.groups, groups.data_version, table, answer.data_version)
        version = self._group_names.version(groups.data_version, answer.data_version)
        valid = self._valid("consumer groups", table, _group_fault)
        forbidden = answer.forbidden_table
        forbidden = {name: topics for name, topics in forbidden.items() if name in valid or name not in table}
        groups.follow(valid, forbidden, gone, version)

    async def _begin_progress(self) -> None:
        self._fetched = MasterProgress(LogState("", 0))
        self._fetched.log = await self._client.log_state()

    async def _fetch_offsets(self) -> None:
        answer = await self._client.consumer_offsets()
        table = answer.offset_table
        answer.offset_table = self._valid("consumer offsets", table, self._offset_fault)
        await self._offset_return.send(answer.offset_table)
        self._fetched.offsets, self._fetched.invalid = answer, frozenset(table.keys() - answer.offset_table.keys())

    async def _fetch_delay_offsets(self) -> None:
        answer = await self._client.delay_offsets()
        answer.offset_table = self._valid("delay offsets", answer.offset_table, level_fault)
        self._fetched.delays = answer

    async def _fetch_timer_checkpoint(self) -> None:
        self._fetched.timer = await self._client.timer_checkpoint(self._clock.time_ms())

    async def _end_progress(self) -> None:
        """Let the fetched progress wait for the own log, if one process of the master answered all of it."""
        state = await self._client.log_state()
        if state.started == self._fetched.log.started and not self._is_acting():
            self._fetched.log = state
            self._gate.add(self._fetched)

    async def _take_over_progress(self) -> None:
        """Take over what the own log covers; an acting master makes its own progress."""
        progress = await self._gate.take()
        if progress is None or self._is_acting():
            return
        tables, (started, before) = self._tables, self._offsets_before
        if (offsets := progress.offsets) is not None:
            # A master that was started again may have lost its last commits: what it lacks then was not deleted.
            had = before.items() if started == progress.log.started else ()
            known = {key: queues for key, queues in had if key not in progress.invalid}
            tables.offsets.follow(offsets.offset_table, offsets.data_version, known)
            self._offsets_before = progress.log.started, offsets.offset_table
        if progress.delays is not None:
            tables.schedule.follow(progress.delays)
        if progress.timer is not None:
            tables.timer.follow(progress.timer)

    async def _sync_message_request_modes(self) -> None:
        table = (await self._client.message_request_modes()).message_request_mode_map
        self._tables.request_modes.follow(self._valid("message request modes", table, self._mode_fault))

    async def _sync_timer_metrics(self) -> None:
        self._tables.timer_metrics.follow(await self._client.timer_metrics())

    def _valid(self, title: str, table: dict[K, V], fault: Callable[[K, V], str]) -> dict[K, V]:
        """Return the entries without a fault; log the others once. This broker's entries of their names stay."""
        faults = {key: text for key, entry in table.items() if (text := fault(key, entry))}
        if not faults:
            self._logged.pop(f"invalid {title}", None)
            return table
        others = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
        first = next(iter(faults.values()))
        self._failed(f"invalid {title}", f"invalid {title} of the master are left out: {first}{others}")
        return {key: entry for key, entry in table.items() if key not in faults}

    def _topic_fault(self, name: str, topic: TopicConfig) -> str:
        """Return the reason to leave out a topic, empty to take it over."""
        if topic.topic_name != name:
            return f"topic {name[:128]!r} has the name {topic.topic_name[:128]!r}"
        if not (0 <= topic.read_queue_nums <= _MOST_QUEUES and 0 <= topic.write_queue_nums <= _MOST_QUEUES):
            return f"topic {name[:128]} has {topic.read_queue_nums} read and {topic.write_queue_nums} write queues"
        return self._topic_name_fault(name)

    def _offset_fault(self, key: str, queues: dict[int, int]) -> str:
        topic, at, group = key.partition("@")
        if not at or self._topic_name_fault(topic) or not validate_group(group, LEGACY_GROUP_MAX_LENGTH).valid:
            return f"{key[:300]!r} is not a topic and a group"
        if any(not 0 <= queue_id < _MOST_QUEUES or offset < -1 for queue_id, offset in queues.items()):
            return f"a queue or an offset of {key} is out of range"
        return ""

    def _mode_fault(self, topic: str, modes: dict[str, SetMessageRequestModeRequestBody]) -> str:
        if self._topic_name_fault(topic):
            return f"{topic[:128]!r} is not a topic"
        wrong = [group for group in modes if not validate_group(group, LEGACY_GROUP_MAX_LENGTH).valid]
        return f"{wrong[0][:128]!r} of topic {topic} is not a group" if wrong else ""

    def _topic_name_fault(self, name: str) -> str:
        """Return the reason why no topic can have a name, empty if one can."""
        # Each broker has topics with the names of itself and its cluster, such as mq1.example.com.
        return "" if name in self._tables.topics.system_topics else validate_topic(name).remark

    def _failed(self, title: str, text: str) -> None:
        """Log a failure once, until the step works again."""
        if self._logged.get(title) != text:
            self._logged[title] = text
            log.error("SlaveSynchronize: %s; next try in %g s", text, INTERVAL_S)

    def _waits(self, reason: str) -> None:
        """Log once that no table is taken over."""
        if self._logged.get("tables") != reason:
            self._logged["tables"] = reason
            log.warning("SlaveSynchronize: the tables are kept as they are: %s", reason)

    def _worked(self, title: str) -> None:
        if self._logged.pop(title, ""):
            log.info("SlaveSynchronize: the %s of the master are followed again", title)


def _group_fault(name: str, group: SubscriptionGroupConfig) -> str:
    """Return the reason to leave out a group, empty to take it over."""
    valid, remark = validate_group(name, LEGACY_GROUP_MAX_LENGTH)
    if valid and group.group_name != name:
        return f"group {name[:128]!r} has the name {group.group_name[:128]!r}"
    return "" if valid else remark


def level_fault(level: int, offset: int) -> str:
    """Return the reason to leave out a delay level, empty to take it over."""
    return "" if 0 < level <= _MOST_LEVELS and offset >= 0 else f"delay level {level} with offset {offset}"
