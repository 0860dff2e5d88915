"""Offsets of consumer groups in ``config/consumerOffset.json``, and their recovery (ConsumerOffsetManager)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from weakref import WeakSet

from rocketbroker.broker.persist.config_manager import (
    ConfigManager,
    OnPersist,
    Settled,
    file_text,
    object_text,
    struct_text,
    text_of,
)
from rocketbroker.broker.schedule_message_service import ScheduleMessageService
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.address_shares import AddressShares
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.common.lifecycle import TaskOwner, until_tick
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

log = logging.getLogger(__name__)

# Offsets that were reset and that no consumer has taken over yet (``resetOffsetTable`` of ConsumerOffsetManager).
#
# A running consumer does not know of a reset: it has messages that it pulled before, and commits what it has consumed,
# which would undo the reset. So the first pull of each client is answered with the new offset, whatever it asks for,
# and commits do not count until a redirected client pulls again. RocketMQ forgets a reset as soon as one pull was
# redirected. A consumer that dies then, or one of 4.x, which waits 10 s before it moves, may commit the old offset
# afterwards.
#
# A client that gave a queue up and took it again has left a pull at the broker, whose answer it discards: two pulls of
# one connection are held then. Neither shows that the client knows of the reset, so that each is redirected. A client
# that got the answer pulls from the new offset afterwards; one that pulls from elsewhere is redirected once more.


class _Reset:
    """The new offset, and the open connections whose pulls were redirected to it.

    Attributes:
        offset: the new offset.
        redirected: connections whose pulls were redirected when they came.
        woken: connections of which held pulls were.
    """

    __slots__ = ("offset", "redirected", "woken")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.redirected: WeakSet[Connection] = WeakSet()
        self.woken: WeakSet[Connection] = WeakSet()


class ResetOffsetTable:
    """Resets by ``topic@group`` and queue. All methods are for the event loop."""

    def __init__(self) -> None:
        self._resets: dict[str, dict[int, _Reset]] = {}

    def __bool__(self) -> bool:
        return bool(self._resets)

    def assign(self, key: str, queue_id: int, offset: int) -> None:
        """Reset a queue to an offset; this replaces an earlier reset."""
        self._resets.setdefault(key, {})[queue_id] = _Reset(offset)

    def holds(self, key: str, queue_id: int) -> bool:
        """Return true if the queue was reset and no client has taken over the offset yet."""
        return queue_id in self._resets.get(key, ())

    def redirect(
        self, key: str, queue_id: int, connection: Connection, asked: int = -1, *, held: bool = False
    ) -> int | None:
        """Return the offset at which the pull of a client must continue; ``None`` to serve it.

        Args:
            key: ``topic@group``.
            queue_id: the queue.
            connection: connection of the client.
            asked: offset of the pull. It counts after a held pull only: a client that pulls from the new offset by
                chance may still have older messages, and a redirected one may pull from anywhere.
            held: the pull was held when the reset came.
        """
        reset = self._resets.get(key, {}).get(queue_id)
        if reset is None:
            return None
        if held:
            reset.woken.add(connection)
            return reset.offset
        if connection in reset.redirected or (connection in reset.woken and asked == reset.offset):
            self.forget(key, queue_id)
            return None
        reset.redirected.add(connection)
        return reset.offset

    def forget(self, key: str, queue_id: int) -> None:
        """Forget the reset of a queue, if there is one."""
        queues = self._resets.get(key, {})
        if queues.pop(queue_id, None) is not None and not queues:
            del self._resets[key]

    def remove(self, belongs: Callable[[str], bool]) -> None:
        """Forget the resets of the keys that ``belongs`` selects."""
        self._resets = {key: queues for key, queues in self._resets.items() if not belongs(key)}

    def offsets(self) -> dict[str, dict[int, int]]:
        """Return a copy of the offsets for the file."""
        return {
            key: {queue_id: reset.offset for queue_id, reset in queues.items()} for key, queues in self._resets.items()
        }

    def take(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """Replace the resets by those of a file."""
        self._resets = {
            key: {queue_id: _Reset(offset) for queue_id, offset in queues.items()}
            for key, queues in table.items()
            if queues
        }


# Consumer offsets of groups, and ``config/consumerOffset.json`` (o.a.r.broker.offset.ConsumerOffsetManager).
#
# Tables are keyed by ``topic@group``; neither name can contain an ``@``. Commits mark the table as changed; ``flush``,
# called every ``flushConsumerOffsetInterval``, schedules a write of a changed table.

TOPIC_GROUP_SEPARATOR = "@"

# topic@group -> queue id -> offset of the next message to consume
OffsetTable = dict[str, dict[int, int]]


class ConsumerOffsetManager(ConfigManager[ConsumerOffsetSerializeWrapper]):
    """Consumer offsets. All methods are for the event loop.

    Args:
        config: ``maxConsumerOffsetNums``.
    """

    file_name, contents = "consumerOffset.json", ConsumerOffsetSerializeWrapper

    def __init__(
        self, path: Path, clock: Clock, on_persist: OnPersist | None = None, config: BrokerConfig | None = None
    ) -> None:
        super().__init__(path, on_persist)
        self._config = config or BrokerConfig()
        # Offsets in both tables.
        self._count = 0
        self._full_logged = False
        self._shares = AddressShares(clock)
        self.data_version = DataVersion(timestamp=clock.time_ms())
        self.table: OffsetTable = {}
        # Last pull offsets of groups that keep their offsets elsewhere (broadcasting); for reports only.
        self.pull_table: OffsetTable = {}
        # Resets that no consumer has taken over yet; each pull checks them.
        self.resets = ResetOffsetTable()
        # Offsets committed here that the master may lack, if this broker is a slave.
        self.slave_commits: OffsetTable = {}
        self._keeps_commits = False
        self._changed = False
        # Returns the offsets to write instead of those in the table, -1 to write none: POP commits before its check
        # points are on disk.
        self.held_back: Callable[[], OffsetTable] = dict
        # Called with topic@group, queue and offset when an offset is set or goes back, -1 when it is forgotten.
        self.on_set: Callable[[str, int, int], None] = _ignore_set
        # Waits until what ``on_set`` stored is on disk; raises StoreError.
        self.sync_sets: Callable[[], Awaitable[None]] = _nothing_to_sync

    def keep_commits(self) -> None:
        """Keep commits for the master in ``slave_commits``: this broker is a slave."""
        self._keeps_commits = True

    @property
    def returned_commits(self) -> OffsetTable | None:
        """Commits that the master may lack, for its return; ``None`` at a master."""
        return self.slave_commits if self._keeps_commits else None

    def forget_slave_commit(self, key: str, queue_id: int) -> None:
        """Forget an offset that the master has."""
        queues = self.slave_commits[key]
        del queues[queue_id]
        if not queues:
            del self.slave_commits[key]
        self._changed = True

    def forget_slave_commits(self) -> None:
        """Forget all such offsets: this broker is a master, and its own table has them."""
        self._changed |= bool(self.slave_commits)
        self.slave_commits = {}

    def follow(self, table: OffsetTable, version: DataVersion | None, before: OffsetTable) -> None:
        """Take over the offsets of a slave's master, except where this slave's own are ahead and not returned yet.

        Offsets beyond ``maxConsumerOffsetNums`` are taken over as well. Offsets that only this slave has stay, unless
        the master deleted them: then a topic or group of the same name must not continue at them.

        Args:
            table: the master's table.
            version: its version.
            before: the table that was taken over last; empty if another process had it.
        """
        for key, queues in before.items():
            if deleted := queues.keys() - table.get(key, {}).keys():
                self._forget(key, deleted)
        for key, queues in table.items():
            kept = self.slave_commits.get(key, {})
            merged = queues | {
                queue_id: offset for queue_id, offset in kept.items() if offset > queues.get(queue_id, -1)
            }
            own = self.table.get(key, {})
            if any(own.get(queue_id) != offset for queue_id, offset in merged.items()):
                self.table[key] = own | merged
                self._changed = True
        if version is not None:
            self.data_version = version
        if self._changed:
            self._recount()

    def _forget(self, key: str, queue_ids: Collection[int]) -> None:
        """Forget the offsets of some queues."""
        for table in (self.table, self.slave_commits):
            if key in table:
                left = {queue_id: offset for queue_id, offset in table[key].items() if queue_id not in queue_ids}
                if left:
                    table[key] = left
                else:
                    del table[key]
        self._changed = True

    def take_over(self, table: OffsetTable, end_of: Callable[[str, int], int]) -> int:
        """Take over the offsets of a slave that are ahead of this master's; return their number.

        Offsets beyond the end of a queue are left out: the slave has messages that this master lost. So are queues with
        a reset that no consumer has taken over yet.

        Args:
            table: the offsets of the slave.
            end_of: returns the queue offset after the last message of a topic's queue.
        """
        count = 0
        for key, queues in table.items():
            topic = key.partition(TOPIC_GROUP_SEPARATOR)[0]
            own = self.table.get(key, {})
            ahead = {
                queue_id: offset
                for queue_id, offset in queues.items()
                if max(own.get(queue_id, 0), 0) < offset <= end_of(topic, queue_id)
                and not self.resets.holds(key, queue_id)
            }
            if ahead:
                self.table[key] = own | ahead
                self._changed = True
                count += len(ahead)
        self._recount()
        return count

    def commit(self, group: str, topic: str, queue_id: int, offset: int, share: bytes | None = None) -> bool:
        """Commit an offset; it may go back, since consumers may be reset.

        Args:
            group: the consumer group.
            topic: the topic.
            queue_id: the queue.
            offset: of the next message to consume.
            share: address whose share of ``maxConsumerOffsetNums`` a first offset counts for; ``None`` for a trusted
                peer, and for the broker itself.

        Returns:
            False if it was ignored, because a consumer has still to take over a reset of the queue.

        Raises:
            BrokerResponseError: SYSTEM_ERROR; it is the first of its queue, and there are too many offsets, or too many
                of this address.
        """
        key = f"{topic}@{group}"
        if self.resets and self.resets.holds(key, queue_id):
            return False
        is_first = queue_id not in self.table.get(key, ())
        if is_first and not self._shares.allows(share, self._free):
            limit = self._config.max_consumer_offset_nums
            remark = (
                f"maxConsumerOffsetNums: {self._count:,} consumer offsets reach the limit of {limit:,}, or this "
                "address's share of it; delete unused groups or raise maxConsumerOffsetNums"
            )
            if not self._full_logged:
                # Clients commit one-way, and get no answer.
                self._full_logged = True
                log.error("consumer group %s cannot commit its first offset in topic %s: %s", group, topic, remark)
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
        if is_first:
            self._shares.add(share)
        if offset < self.query(group, topic, queue_id):
            self.on_set(key, queue_id, offset)
        self._keep(key, queue_id, offset)
        if self._keeps_commits:
            self.slave_commits.setdefault(key, {})[queue_id] = offset
        return True

    def replace(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset, and discard a reset of the queue (cloneOffset)."""
        self.on_set(f"{topic}@{group}", queue_id, offset)
        self.restore(group, topic, queue_id, offset)

    def restore(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset that the log has, and discard a reset of the queue."""
        key = f"{topic}@{group}"
        self.resets.forget(key, queue_id)
        self._keep(key, queue_id, offset)

    def assign_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Reset the group to an offset; commits are ignored until a consumer has taken it over (assignResetOffset)."""
        key = f"{topic}@{group}"
        self.on_set(key, queue_id, offset)
        self._keep(key, queue_id, offset)
        self.resets.assign(key, queue_id, offset)

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Return true if the queue was reset and no consumer has taken the offset over yet."""
        return bool(self.resets) and self.resets.holds(f"{topic}@{group}", queue_id)

    def take_reset(self, group: str, topic: str, queue_id: int) -> None:
        """End a reset of the queue: a pop takes over its offset, for all clients of the group."""
        self.resets.forget(f"{topic}@{group}", queue_id)
        self._changed = True

    def redirect(
        self, group: str, topic: str, queue_id: int, connection: Connection, asked: int = -1, *, held: bool = False
    ) -> int | None:
        """Return the offset a pull must continue at after a reset of the queue; ``None`` to serve it."""
        # Either result may end the reset, which then has to reach the file.
        self._changed = True
        return self.resets.redirect(f"{topic}@{group}", queue_id, connection, asked, held=held)

    @property
    def _free(self) -> int:
        return self._config.max_consumer_offset_nums - self._count

    def _keep(self, key: str, queue_id: int, offset: int) -> None:
        queues = self.table.get(key)
        if queues is None:
            self.table[key] = {queue_id: offset}
            self._count += 1
        else:
            self._count += queue_id not in queues
            if offset < queues.get(queue_id, offset):
                log.debug("offset of %s queue %s goes back from %s to %s", key, queue_id, queues[queue_id], offset)
            queues[queue_id] = offset
        self._changed = True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed offset, -1 without one."""
        queues = self.table.get(f"{topic}@{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def commit_pull(self, group: str, topic: str, queue_id: int, offset: int, share: bytes | None = None) -> None:
        """Record the offset that the group pulled from last; not for a new queue if there are too many offsets.

        Args: see ``commit``.
        """
        queues = self.pull_table.get(f"{topic}@{group}")
        if queues is None or queue_id not in queues:
            if not self._shares.allows(share, self._free):
                return
            self._shares.add(share)
            self._count += 1
            queues = self.pull_table.setdefault(f"{topic}@{group}", {})
        queues[queue_id] = offset
        self._changed = True

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset that the group pulled from last, else the committed one, else -1."""
        offset = self.pull_table.get(f"{topic}@{group}", {}).get(queue_id)
        return self.query(group, topic, queue_id) if offset is None else offset

    def offsets_of(self, group: str, topic: str) -> dict[int, int]:
        """Return a copy of the committed offsets by queue id."""
        return dict(self.table.get(f"{topic}@{group}", {}))

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which the group has offsets (whichTopicByConsumer)."""
        suffix = TOPIC_GROUP_SEPARATOR + group
        return {key.removesuffix(suffix) for key in self.table if key.endswith(suffix)}

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have offsets in the topic (whichGroupByTopic)."""
        prefix = topic + TOPIC_GROUP_SEPARATOR
        return {key.removeprefix(prefix) for key in self.table if key.startswith(prefix)}

    def remove_group(self, group: str) -> None:
        """Forget the offsets of a group (removeOffset)."""
        suffix = TOPIC_GROUP_SEPARATOR + group
        self._remove(lambda key: key.endswith(suffix))

    def remove_topic(self, topic: str) -> None:
        """Forget the offsets in a topic (cleanOffsetByTopic)."""
        prefix = topic + TOPIC_GROUP_SEPARATOR
        self._remove(lambda key: key.startswith(prefix))

    def set_back(self, end_of: Callable[[str, int], int]) -> list[str]:
        """Set offsets beyond the end of their queue back to it; return one text for each.

        Args:
            end_of: returns the queue offset after the last message of a topic's queue.
        """
        told = []
        for table in (self.table, self.pull_table):
            for key, queues in table.items():
                topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
                for queue_id, offset in queues.items():
                    end = end_of(topic, queue_id)
                    if offset > end:
                        queues[queue_id] = end
                        self._changed = True
                        told.append(
                            f"the offset of group {group} in topic {topic}, queue {queue_id}, is set back from "
                            f"{offset} to {end}, where the queue ends now"
                        )
        # Not reported: the committed offsets are the same, and are reported above.
        resets = self.resets.offsets()
        for key, queues in [*resets.items(), *self.slave_commits.items()]:
            topic = key.partition(TOPIC_GROUP_SEPARATOR)[0]
            queues.update((queue_id, min(offset, end_of(topic, queue_id))) for queue_id, offset in queues.items())
        self.resets.take(resets)
        return told

    def flush(self) -> Settled | None:
        """Schedule a write of the table if it has changed since the last one; return its future."""
        if not self._changed:
            return None
        self._changed = False
        return self.persist()

    def group_topic_map(self) -> dict[str, list[str]]:
        """Return the topics by group, as in the file; computed from the offset table."""
        return _topics_by_group(self.table)

    def encoder(self) -> Callable[[], bytes]:
        """Return a function that makes the text on a thread, from a copy: it takes a sixth of the time of the text."""
        version, table, pull_table = struct_text(self.data_version, 1), _copy(self.table), _copy(self.pull_table)
        for key, queues in self.held_back().items():
            # The next flush writes the rest.
            self._changed = True
            table[key] = {each: at for each, at in (table.get(key, {}) | queues).items() if at >= 0}
        # RocketMQ has no such field and ignores it, but would set the whole file aside for a key without quotes.
        own = {"resetOffsetTable": self.resets.offsets(), "slaveCommitTable": self.slave_commits}
        texts = {name: _quoted(entries) for name, entries in own.items() if entries}

        def encode() -> bytes:
            # The general encoder takes 4 µs per offset, this a tenth.
            topics = (
                f"\t\t{text_of(group)}:[\n{_lines(map(text_of, names))}\n\t\t]"
                for group, names in _topics_by_group(table).items()
            )
            return file_text(
                dataVersion=version,
                groupTopicMap=object_text(topics, 1),
                offsetTable=_offsets(table),
                pullOffsetTable=_offsets(pull_table),
                **texts,
            )

        return encode

    def count(self, file: ConsumerOffsetSerializeWrapper) -> int:
        """Return the number of entries."""
        return len(file.offset_table)

    def take(self, file: ConsumerOffsetSerializeWrapper) -> None:
        """Replace the tables by those of a ``consumerOffset.json``."""
        self.table = file.offset_table
        self.pull_table = file.pull_offset_table or {}
        self.resets.take(file.reset_offset_table or {})
        self.slave_commits = file.slave_commit_table or {}
        self.data_version = file.data_version or self.data_version
        self._recount()

    def _remove(self, belongs: Callable[[str], bool]) -> None:
        for key in [key for key in self.table if belongs(key)]:
            for queue_id in self.table[key]:
                self.on_set(key, queue_id, -1)
        for table in (self.table, self.pull_table, self.slave_commits):
            for key in [key for key in table if belongs(key)]:
                del table[key]
                self._changed = True
        self.resets.remove(belongs)
        self._recount()
        self.flush()

    def _recount(self) -> None:
        self._count = sum(len(queues) for table in (self.table, self.pull_table) for queues in table.values())
        self._full_logged &= self._free <= 0


def _ignore_set(_key: str, _queue_id: int, _offset: int) -> None:
    """Take no notice of an offset that is set."""


async def _nothing_to_sync() -> None:
    """Do nothing: nothing was stored."""


def _copy(table: OffsetTable) -> OffsetTable:
    return {key: queues.copy() for key, queues in table.items()}


def _topics_by_group(keys: Iterable[str]) -> dict[str, list[str]]:
    topics: dict[str, list[str]] = {}
    for key in keys:
        topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
        topics.setdefault(group, []).append(topic)
    return topics


def _offsets(table: OffsetTable) -> str:
    lines = (
        f"\t\t{text_of(key)}:{{\n{_lines(f'{queue_id}:{offset}' for queue_id, offset in queues.items())}\n\t\t}}"
        for key, queues in table.items()
        if queues
    )
    return object_text(lines, 1)


def _quoted(table: OffsetTable) -> str:
    texts = {key: {str(queue_id): offset for queue_id, offset in queues.items()} for key, queues in table.items()}
    return fastjson.dumps(texts, indent="\t").decode().replace("\n", "\n\t")


def _lines(values: Iterable[str]) -> str:
    return ",\n".join([f"\t\t\t{value}" for value in values])


# Consumer offsets beyond the end of their queue: after a crash, a cut of the log, or a change of role.
#
# RocketMQ leaves the offsets as they are, so that a group skips new messages that get the offsets of lost ones.
#
# Each start looks, whatever the last stop was: it costs a microsecond an offset. A clean stop says that the log is on
# disk, not that the offsets belong to it. Those of a slave are its master's, and a slave of an earlier version took
# them over before it had the messages. A start that ended early may also have left an unclean store a clean one.


class OffsetRecovery:
    """Sets offsets beyond the end of their queue back to it.

    Args:
        offsets: the offsets, loaded.
        queues: the queues, recovered.
        drain: waits until submitted tables are on disk; returns the paths of those that could not be written.
    """

    def __init__(
        self,
        offsets: ConsumerOffsetManager,
        queues: ConsumeQueueStore,
        drain: Callable[[], Awaitable[Collection[Path]]],
    ) -> None:
        self._offsets = offsets
        self._queues = queues
        self._drain = drain

    async def start(self) -> None:
        """Set back offsets, and log each one.

        The table is on disk before a new message can come: after a crash its offset would no longer be beyond the end.

        Raises:
            StoreError: The table could not be written; the next start sets back the same offsets.
        """
        set_back = self._offsets.set_back(self._queues.max_offset_in_queue)
        for back in set_back:
            log.warning("consumer offsets: %s", back)
        if not set_back:
            return
        self._offsets.flush()
        if (path := self._offsets.path) in await self._drain():
            raise StoreError(
                f"{path} cannot be written, where {len(set_back)} offsets had to be set back to their queue's end: "
                "consumers would skip new messages; free space on its disk, or make it writable again"
            )

    async def stop(self) -> None:
        """Do nothing: this part only acts at the start."""


class OffsetFlushService:
    """Flushes every ``flushConsumerOffsetInterval`` and ``flushDelayOffsetInterval``, and at the stop.

    Stop it after the parts that change offsets, and before ``ConfigPersistService``, which writes them.
    """

    def __init__(
        self,
        consumer_offsets: ConsumerOffsetManager,
        schedule_message_service: ScheduleMessageService,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
    ) -> None:
        self._consumer_offsets = consumer_offsets
        self._schedule_message_service = schedule_message_service
        self._config = config
        self._store_config = store_config
        self._tasks = TaskOwner("OffsetFlushService")

    async def start(self) -> None:
        config, store_config = self._config, self._store_config
        consumer, delay = self._consumer_offsets.flush, self._schedule_message_service.flush
        flush_consumer = partial(_repeat, lambda: config.flush_consumer_offset_interval, consumer)
        flush_delay = partial(_repeat, lambda: store_config.flush_delay_offset_interval, delay)
        self._tasks.forever(flush_consumer, "consumer offsets")
        self._tasks.forever(flush_delay, "delay offsets")

    async def stop(self) -> None:
        """Flush a last time."""
        await self._tasks.stop()
        self._consumer_offsets.flush()
        self._schedule_message_service.flush()


async def _repeat(interval_ms: Callable[[], int], action: Callable[[], object]) -> None:
    while True:
        await asyncio.sleep(until_tick(interval_ms() / 1000))  # called each time: both settings can change at run time
        action()
