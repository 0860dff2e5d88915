"""Holds all ConsumeQueues against the CommitLog: gives each queue its messages, window by window."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.record_columns import Positions
from rocketbroker.store.audit.findings import Findings
from rocketbroker.store.audit.log_lookup import LogLookup
from rocketbroker.store.audit.queue_audit import QueueAudit, QueueMessages
from rocketbroker.store.audit.store_state import StoreState
from rocketbroker.store.audit.window_messages import WindowMessages
from rocketbroker.store.delay_level_table import deliver_timestamp

_RETIRED = re.compile(r"\.deleted-[0-9]+\Z")
# Their entries lead to records of other topics (multi-dispatch).
_LITE_PREFIX = "%LMQ%"
_SCHEDULE_TOPIC = RMQ_SYS_SCHEDULE_TOPIC.encode()


class QueuesAudit:
    """The queues of a store.

    Args:
        directory: ``consumequeue``.
        log_begin: physical offset of the first byte of the log.
        state: how the store was left.
        findings: takes what is wrong.
        delay_levels: ms by level; entries of SCHEDULE_TOPIC_XXXX bear the time of delivery.
        deleted_before: by topic the physical offset before which its messages were deleted with it.
        wanted: tells of a topic whether it is to be checked.
    """

    def __init__(
        self,
        directory: Path,
        log_begin: int,
        state: StoreState,
        findings: Findings,
        delay_levels: dict[int, int],
        *,
        deleted_before: Mapping[str, int],
        wanted: Callable[[str], bool],
    ) -> None:
        self._directory = directory
        self._findings = findings
        self._levels = delay_levels
        self._deleted_before = deleted_before
        self._wanted = wanted
        self.queues = {
            (topic.name, int(queue.name)): QueueAudit(queue, log_begin, state, findings)
            for topic in queue_topics(directory)
            if wanted(topic.name)
            for queue in sorted(p for p in topic.iterdir() if p.is_dir() and p.name.isdigit())
        }
        # Messages of queues that are not there: how many, and where the first is.
        self._without: dict[tuple[str, int], tuple[int, int]] = {}

    @property
    def queued_end(self) -> int:
        """Physical offset behind the last message that any queue knows."""
        return max((queue.queued_end for queue in self.queues.values()), default=0)

    def take(self, window: WindowMessages) -> None:
        """Hold a window's messages against their entries."""
        groups = window.topic_numbers << 32 | (window.queue_ids & 0xFFFFFFFF)
        groups[~window.dispatched] = -1
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.concatenate(([True], np.diff(groups[order]) != 0)))
        for members in np.split(order, starts[1:]):
            if groups[members[0]] >= 0:
                self._take_queue(window, members)

    def _take_queue(self, window: WindowMessages, members: Positions) -> None:
        topic, queue_id = window.topics[window.topic_numbers[members[0]]], int(window.queue_ids[members[0]])
        name = topic.decode("utf-8", "replace")
        if not self._wanted(name):
            return
        members = members[window.offsets[members] >= self._deleted_before.get(name, 0)]
        if not len(members):
            return
        queue = self.queues.get((name, queue_id))
        if queue is None:
            count, first = self._without.get((name, queue_id), (0, int(window.offsets[members[0]])))
            self._without[name, queue_id] = count + len(members), first
            return
        queue.take(
            QueueMessages(
                window.offsets[members],
                window.queue_offsets[members],
                window.records.total_size[members],
                self._tags_codes(window, topic, members),
                window.store_timestamps[members],
            )
        )

    def _tags_codes(self, window: WindowMessages, topic: bytes, members: Positions) -> Positions:
        if topic != _SCHEDULE_TOPIC:
            return window.tags_codes[members]
        codes = []
        for member in members.tolist():
            level = window.value(window.delay_levels, member)
            stored = int(window.store_timestamps[member])
            codes.append(deliver_timestamp(self._levels, int(level) if level.isdigit() else 0, stored))
        return np.array(codes, np.int64)

    def finish(self, log: LogLookup) -> None:
        """Say what is wrong, now that all messages were seen."""
        led_to: set[int] = set()
        for queue in self.queues.values():
            led_to |= queue.find_astray(log)
        for queue in self.queues.values():
            queue.find_unqueued(led_to)
        for (topic, queue_id), (count, first) in self._without.items():
            path = self._directory / topic / str(queue_id)
            text = f"{count} messages of {topic}/{queue_id}, the first at {first} of the CommitLog"
            self._findings.add(AuditRule.QUEUE_MISSING, path, 0, text)


def queue_topics(directory: Path) -> list[Path]:
    """The folders of topics in ``consumequeue``, by name; not those of deleted ones, and not LMQs."""
    if not directory.is_dir():
        return []
    return sorted(
        path
        for path in directory.iterdir()
        if path.is_dir() and not _RETIRED.search(path.name) and not path.name.startswith(_LITE_PREFIX)
    )
