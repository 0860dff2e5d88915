"""A store of small files for tests of cleaning, and a disk with a given usage."""

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocketbroker.store.clean.clean_files_service import QueueRange
from rocketbroker.store.clean.disk_watch import DiskUse
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock
from tests.support.stores import make_store, message

LOG_FILE = 4096
CAPACITY = 100 * LOG_FILE
QUEUE_FILE = 100  # five messages
HOUR_S = 3600
_BODY = b"x" * 1100


class SaidDisk:
    """Fake of both disks; ``percent`` is their usage, ``error`` the failure of reading it."""

    def __init__(self, percent: float = 50.0) -> None:
        self.percent = percent
        self.error: OSError | None = None
        self.go_on = threading.Event()
        self.go_on.set()
        self.asked: list[Path] = []

    def __call__(self, path: Path) -> DiskUse:
        self.asked.append(path)
        if not self.go_on.wait(60):
            raise TimeoutError("nobody let the disk answer")
        if self.error is not None:
            raise self.error
        return DiskUse(round(self.percent * CAPACITY / 100), CAPACITY)


class Losses:
    """Recorder of the requested ranges."""

    def __init__(self) -> None:
        self.ranges: list[list[QueueRange]] = []

    def __call__(self, ranges: Sequence[QueueRange]) -> list[str]:
        self.ranges.append(list(ranges))
        return [f"group g loses {each.topic}/{each.queue_id}" for each in ranges]


def small_store(root: Path, clock: FakeClock, **settings) -> MessageStore:
    """Return a store, not started, whose log files hold three messages of ``fill``; it is not the hour to delete."""
    hour = time.localtime(clock.time_ms() // 1000).tm_hour
    small: dict[str, Any] = {
        "mapped_file_size_commit_log": LOG_FILE,
        "mapped_file_size_consume_queue": QUEUE_FILE,
        "delete_when": str((hour + 12) % 24),
        "delete_commit_log_files_interval": 0,
        "delete_consume_queue_files_interval": 0,
    }
    return make_store(root, clock, **(small | settings))


def fill(store: MessageStore, count: int, topic: str = "T", queue_id: int = 0) -> None:
    """Store messages of which three fill a file of the log."""
    for _ in range(count):
        store.appender.put_message(message(_BODY, topic, queue_id))
    store.appender.dispatch()


def log_files(store: MessageStore) -> list[int]:
    """Return the files of the log that the disk has and the store serves, by number; without the one preallocated."""
    served = [file.path for file in store.commit_log.queue.files]
    on_disk = sorted(store.config.commit_log_dir.iterdir())[: len(served)]
    assert on_disk == served
    return [int(path.name) // LOG_FILE for path in on_disk]


def age(store: MessageStore, clock: FakeClock, number: int, hours: float) -> None:
    """Set back the modification time of a log file, given by its number in the list."""
    seconds = clock.time_ms() / 1000 - hours * HOUR_S
    os.utime(store.commit_log.queue.files[number].path, (seconds, seconds))
