"""Check of all queues against the CommitLog; each receives its messages of a window."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.consume_queue_layout import RETIRED
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.codec.storefile.window_messages import WindowMessages, due_times
from rocketbroker.store.audit.batch_queue_audit import BatchQueueAudit, BatchRecords
from rocketbroker.store.audit.findings import Findings
from rocketbroker.store.audit.log_lookup import LogLookup
from rocketbroker.store.audit.queue_audit import QueueAudit, QueueMessages

# Their entries lead to records of other topics (multi-dispatch).
_LITE_PREFIX = "%LMQ%"


class QueuesAudit:
    """Check of the queues of a store.

    Args:
        directories: ``consumequeue`` and ``batchconsumequeue``.
        log_begin: physical offset of the first byte of the log.
        state: state in which the last broker left the store.
        findings: receives the findings.
        delay_levels: ms by level; entries of SCHEDULE_TOPIC_XXXX have the time of delivery as tags code.
        deleted_before: by topic, the physical offset before which its messages were deleted.
        wanted: returns true if a topic is to check.
    """

    def __init__(
        self,
        directories: tuple[Path, Path],
        log_begin: int,
        state: StoreState,
        findings: Findings,
        delay_levels: dict[int, int],
        *,
        deleted_before: Mapping[str, int],
        wanted: Callable[[str], bool],
    ) -> None:
        self._directory, batch_directory = directories
        self._findings = findings
        self._levels = delay_levels
        self._deleted_before = deleted_before
        self._wanted = wanted
        self.queues = {
            (topic, queue_id): QueueAudit(folder, log_begin, state, findings)
            for topic, queue_id, folder in queue_folders(self._directory)
            if wanted(topic)
        }
        self.batch_queues = {
            (topic, queue_id): BatchQueueAudit(folder, log_begin, state, findings)
            for topic, queue_id, folder in queue_folders(batch_directory)
            if wanted(topic)
        }
        # Messages of missing queues: their number, and the offset of the first.
        self._without: dict[tuple[str, int], tuple[int, int]] = {}

    @property
    def queued_end(self) -> int:
        """Physical offset after the last message that any queue knows."""
        ends = [queue.queued_end for queue in self.queues.values()]
        return max(ends + [queue.queued_end for queue in self.batch_queues.values()], default=0)

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """Queue offset after the last message of each non-empty queue, by topic and queue number."""
        ends = {name: queue.end for name, queue in self.queues.items()}
        ends |= {name: queue.end for name, queue in self.batch_queues.items()}
        return {name: end for name, end in ends.items() if end}

    def take(self, window: WindowMessages) -> None:
        """Compare a window's messages with their entries."""
        for topic, queue_id, members in window.by_queue():
            name = topic.decode("utf-8", "replace")
            if self._wanted(name):
                left = members[window.offsets[members] >= self._deleted_before.get(name, 0)]
                if len(left):
                    self._take_queue(window, name, queue_id, left)

    def _take_queue(self, window: WindowMessages, name: str, queue_id: int, members: Positions) -> None:
        if (batch_queue := self.batch_queues.get((name, queue_id))) is not None:
            batch_queue.take(_batch_records(window, members))
            return
        members = members[~window.are_batches[members]]
        if not len(members):
            return  # like those of a deleted topic
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
        """Add the findings that are certain only after all messages were seen."""
        led_to: set[int] = set()
        for queue in self.queues.values():
            led_to |= queue.find_astray(log)
        for queue in self.queues.values():
            queue.find_unqueued(led_to)
        for batch_queue in self.batch_queues.values():
            batch_queue.finish(log)
        for (topic, queue_id), (count, first) in self._without.items():
            path = self._directory / topic / str(queue_id)
            text = f"{count} messages of {topic}/{queue_id}, the first at {first} in the CommitLog"
            self._findings.add(AuditRule.QUEUE_MISSING, path, 0, text)


def _batch_records(window: WindowMessages, members: Positions) -> BatchRecords:
    return BatchRecords(
        window.offsets[members],
        window.records.total_size[members].astype(np.int64),
        window.tags_codes[members],
        window.store_timestamps[members],
        window.queue_offsets[members],
        window.inner_counts(members),
    )


def queue_folders(directory: Path) -> Iterator[tuple[str, int, Path]]:
    """Topic, number and folder of each queue of ``queue_topics``."""
    for topic in queue_topics(directory):
        for queue in sorted(p for p in topic.iterdir() if p.is_dir() and p.name.isdigit()):
            yield topic.name, int(queue.name), queue


def queue_topics(directory: Path) -> list[Path]:
    """Return the folders of topics in ``consumequeue`` by name, without deleted topics and LMQs."""
    if not directory.is_dir():
        return []
    return sorted(
        path
        for path in directory.iterdir()
        if path.is_dir() and not RETIRED.search(path.name) and not path.name.startswith(_LITE_PREFIX)
    )
