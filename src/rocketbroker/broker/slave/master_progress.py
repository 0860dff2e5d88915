"""Progress of a master that waits until the log of its slave has all that it counts.

A slave that takes over a progress states: what it counts as done was done, and what came of it is in my log: copies of
delayed messages, messages of committed transactions, messages that were sent back. Nobody does it again once the slave
is promoted, so the statement must be true at any moment at which the master is lost. Rather twice than not at all:

- The end of the master's log is asked for after the tables. All that they count was stored before it.
- Tables and end are of one process: its start time is asked for before the tables and with the end. A master that was
  started again may have lost the end of its log, and have stored other messages at the same offsets. So has another
  master. What waits of an earlier process goes.
- The own log has passed that end, with the entries in its queues: the last dispatched record ends there or later.
- It is the log of that process: its record at this offset is the same. Records hold their offset and times, so logs
  with the same record have the same history up to it (``ha/history_check.py``). The start time is compared after it.
- All of it is on this slave's disk before a table changes. A power loss or a kill then leaves a log with that end.

What waits is in memory only. A slave that starts again has the progress that it had taken over, and asks again. At a
master of this kind no record of a deleted topic is found: then the progress waits for the next message.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketbroker.broker.offset.consumer_offset_manager import TOPIC_GROUP_SEPARATOR, ConsumerOffsetManager, OffsetTable
from rocketbroker.broker.slave.master_client import LogState, MasterClient
from rocketbroker.codec.remoting.bodies.offset import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from rocketbroker.codec.storefile.checkpoint_layout import TimerCheckpoint
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.dispatch.reput_message_service import LastRecord
from rocketbroker.store.flush.flush_service import CommitLogFlusher

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class MasterProgress:
    """Answers of a master in one round, ``None`` for one that failed.

    Attributes:
        log: state of the master after the answers.
        invalid: keys of consumer offsets that were left out.
    """

    log: LogState
    offsets: ConsumerOffsetSerializeWrapper | None = None
    invalid: frozenset[str] = frozenset()
    delays: DelayOffsetSerializeWrapper | None = None
    timer: TimerCheckpoint | None = None


class MasterProgressGate:
    """Holds progress back until the own log has all that it counts. All methods are for the event loop.

    Two rounds wait at most: the newest, and the oldest, which a log that is always behind reaches nevertheless.

    Args:
        last_record: returns the last record that is dispatched, ``None`` without one.
    """

    def __init__(
        self,
        client: MasterClient,
        commit_log: CommitLog,
        last_record: Callable[[], LastRecord | None],
        flusher: CommitLogFlusher,
    ) -> None:
        self._client = client
        self._commit_log = commit_log
        self._last_record = last_record
        self._flusher = flusher
        self._waiting: list[MasterProgress] = []

    def add(self, progress: MasterProgress) -> None:
        """Let the progress of a round wait."""
        oldest = self._waiting[:1]
        self._waiting = [each for each in oldest if each.log.started == progress.log.started] + [progress]

    def clear(self) -> None:
        """Forget what waits: its master is no longer followed, or this broker makes its own progress."""
        self._waiting = []

    async def take(self) -> MasterProgress | None:
        """Return the newest progress that the own log covers, and forget it and older ones; ``None`` without one.

        Raises:
            RemotingError: The master does not answer.
            CodecError: Its answer is wrong.
        """
        if not self._waiting:
            return None
        last = self._last_record()
        if last is None and self._commit_log.max_offset > self._commit_log.min_offset:
            return None
        # A log without a record covers the progress of a log without one.
        end = last.offset + last.size if last else 0
        covered = [each for each in self._waiting if each.log.end <= end]
        if not covered or (last and not await self._master_has(last)):
            return None
        progress = covered[-1]
        if (await self._client.log_state()).started != progress.log.started:
            self.clear()
            return None
        # Also when the disk fails: what is not on it counts for nothing.
        if not (await self._flusher.sync()).ok or progress not in self._waiting:
            return None
        self._waiting = [each for each in self._waiting if each not in covered]
        return progress

    async def _master_has(self, last: LastRecord) -> bool:
        """Return true if the master has the same record as this log."""
        # With its size: ``maxMessageSize`` may have been lowered since it was stored.
        record = await asyncio.get_running_loop().run_in_executor(None, self._commit_log.record, *last)
        return record is not None and await self._client.record(last.offset) == record


# Consumer offsets that were committed at a slave return to its master. RocketMQ leaves this to the consumers, whose
# progress is lost if they stop before the master is back. An offset is sent only while the master's stays the same for
# a round: else a consumer commits there again, and an older offset would set it back. A consumer that commits first
# between the round and the send is still set back, by the messages that it consumed in that moment.

#: Times that an offset is sent before it is given up, as the master does not take it.
MOST_SENDS: Final = 6


class _Round(NamedTuple):
    """State of a queue in the last round: this broker's offset, the master's, and how often the former was sent."""

    offset: int
    at_master: int
    sends: int


class OffsetReturn:
    """Sends the offsets that were committed at this slave until the master's table has them."""

    def __init__(self, offsets: ConsumerOffsetManager, client: MasterClient) -> None:
        self._offsets = offsets
        self._client = client
        self._rounds: dict[tuple[str, int], _Round] = {}

    async def send(self, of_master: OffsetTable) -> None:
        """Send the offsets that are ahead of the master's table; forget those that it has, or does not take.

        Raises:
            RemotingError: The master does not answer.
        """
        for key, queues in list(self._offsets.slave_commits.items()):
            for queue_id, offset in list(queues.items()):
                at_master = of_master.get(key, {}).get(queue_id, -1)
                if at_master >= offset:
                    self._forget(key, queue_id)
                    continue
                last = self._rounds.get((key, queue_id))
                if last is None or last.at_master != at_master:
                    self._rounds[key, queue_id] = _Round(offset, at_master, 0)
                    continue
                sends = last.sends + 1 if last.offset == offset else 1
                self._rounds[key, queue_id] = _Round(offset, at_master, sends)
                topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
                if sends > MOST_SENDS:
                    log.error(
                        "SlaveSynchronize: the master does not take offset %d of group %s in topic %s, queue %d; it is "
                        "given up",
                        *(offset, group, topic, queue_id),
                    )
                    self._forget(key, queue_id)
                    continue
                await self._client.commit(group, topic, queue_id, offset)

    def _forget(self, key: str, queue_id: int) -> None:
        self._rounds.pop((key, queue_id), None)
        self._offsets.forget_slave_commit(key, queue_id)
