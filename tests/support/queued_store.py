"""Stores whose messages have consecutive offsets in the queues of several topics, with or without their queues."""

import random
from pathlib import Path
from typing import Any

from tests.support.commit_log_writer import CommitLogWriter
from tests.support.consume_queue_writer import write_queues
from tests.support.slow_store_reader import slow_rows

TOPICS = ("Orders", "OrdersEU", "Refunds")
QUEUES = 3
START_MS = 1_795_255_000_000
#: Store time between two messages.
STEP_MS = 500


class QueuedStore:
    """A store of random messages, each ``STEP_MS`` after the one before; ``rows`` are read by a plain loop."""

    def __init__(self, root: Path, count: int = 0, seed: int = 1, file_size: int = 1 << 14) -> None:
        self.root = root
        self.writer = CommitLogWriter(root, file_size=file_size)
        self._chance = random.Random(seed)
        self._ends: dict[tuple[str, int], int] = {}
        self.append(count)

    def append(self, count: int, topics: tuple[str, ...] = TOPICS, *, dispatched: bool = True) -> None:
        """Append messages, to their queues as well if they are ``dispatched``."""
        for _ in range(count):
            topic, queue_id = self._chance.choice(topics), self._chance.randrange(QUEUES)
            number = self._ends.get((topic, queue_id), 0)
            self._ends[topic, queue_id] = number + 1
            self.writer.append(
                self._chance.randbytes(self._chance.randrange(200)),
                topic.encode(),
                f"KEYS\x01k{number}\x02TAGS\x01t\x02UNIQ_KEY\x01U{number}\x02".encode(),
                queue_id=queue_id,
                queue_offset=number,
                store_timestamp=START_MS + len(self.writer.records) * STEP_MS,
            )
        if dispatched and count:
            write_queues(self.root, self.rows)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return slow_rows(self.writer.directory)

    def end(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last message of a queue."""
        return self._ends.get((topic, queue_id), 0)
