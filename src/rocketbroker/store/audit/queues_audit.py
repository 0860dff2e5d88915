"""Holds all ConsumeQueues against the CommitLog: gives each queue its messages, window by window."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.codec.storefile.window_messages import WindowMessages
from rocketbroker.store.audit.findings import Findings
from rocketbroker.store.audit.log_lookup import LogLookup
from rocketbroker.store.audit.queue_audit import QueueAudit, QueueMessages
from rocketbroker.store.due_times import due_times

_RETIRED = re.compile(r"\.deleted-[0-9]+\Z")
# Their entries lead to records of other topics (multi-dispatch).
_LITE_PREFIX = "%LMQ%"


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
        for topic, queue_id, members in window.by_queue():
            name = topic.decode("utf-8", "replace")
            if self._wanted(name):
                left = members[window.offsets[members] >= self._deleted_before.get(name, 0)]
                if len(left):
                    self._take_queue(window, name, queue_id, left)

    def _take_queue(self, window: WindowMessages, name: str, queue_id: int, members: Positions) -> None:
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
                self._tags_codes(window, name, members),
                window.store_timestamps[members],
            )
        )

    def _tags_codes(self, window: WindowMessages, topic: str, members: Positions) -> Positions:
        if topic == RMQ_SYS_SCHEDULE_TOPIC:
            return due_times(self._levels, window, members)
        return window.tags_codes[members]

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
