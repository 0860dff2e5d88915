"""Consumer offsets of groups, and ``config/consumerOffset.json`` (o.a.r.broker.offset.ConsumerOffsetManager).

Tables are keyed by ``topic@group``; neither name can contain an ``@``. Commits mark the table as changed; ``flush``,
called every ``flushConsumerOffsetInterval``, schedules a write of a changed table.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from rocketbroker.broker.offset.reset_offset_table import ResetOffsetTable
from rocketbroker.broker.persist.config_manager import ConfigManager, OnPersist, Settled
from rocketbroker.broker.persist.config_text import file_text, object_text, struct_text, text_of
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.codec.storefile.config_tables import decode_table
from rocketbroker.common.address_shares import AddressShares
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError

log = logging.getLogger(__name__)

TOPIC_GROUP_SEPARATOR = "@"

# topic@group -> queue id -> offset of the next message to consume
OffsetTable = dict[str, dict[int, int]]


class ConsumerOffsetManager(ConfigManager[ConsumerOffsetSerializeWrapper]):
    """Consumer offsets. All methods are for the event loop.

    Args:
        path: ``config/consumerOffset.json``.
        clock: dates the data version.
        on_persist: see ``ConfigManager``.
        config: ``maxConsumerOffsetNums``.
    """

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
        self._keep(key, queue_id, offset)
        if self._keeps_commits:
            self.slave_commits.setdefault(key, {})[queue_id] = offset
        return True

    def replace(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset, and discard a reset of the queue (cloneOffset)."""
        key = f"{topic}@{group}"
        self.resets.forget(key, queue_id)
        self._keep(key, queue_id, offset)

    def assign_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Reset the group to an offset; commits are ignored until a consumer has taken it over (assignResetOffset)."""
        key = f"{topic}@{group}"
        self._keep(key, queue_id, offset)
        self.resets.assign(key, queue_id, offset)

    def redirect(self, group: str, topic: str, queue_id: int, connection: Connection) -> int | None:
        """Return the offset a pull must continue at after a reset of the queue; ``None`` to serve it."""
        # Either result may end the reset, which then has to reach the file.
        self._changed = True
        return self.resets.redirect(f"{topic}@{group}", queue_id, connection)

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

    def encode(self) -> bytes:
        """Return ``consumerOffset.json`` as RocketMQ writes it."""
        return self.encoder()()

    def encoder(self) -> Callable[[], bytes]:
        """See ``ConfigManager``; a copy takes a sixth of the time that the text takes."""
        version, table, pull_table = struct_text(self.data_version, 1), _copy(self.table), _copy(self.pull_table)
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

    def parse(self, data: bytes) -> ConsumerOffsetSerializeWrapper:
        """Parse a ``consumerOffset.json``."""
        return decode_table("consumerOffset.json", data, ConsumerOffsetSerializeWrapper)

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
