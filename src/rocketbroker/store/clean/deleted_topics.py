"""Marks of deleted topics: ``config/deletedTopics.json``, by topic the CommitLog offset of its deletion.

The messages of a deleted topic stay in the log until their file expires. A rebuild of queues from the log omits those
before the mark, so that the topic does not return.
"""

import logging
import threading
from collections.abc import Iterable
from pathlib import Path

from rocketbroker.codec.storefile.config_json import dumps_config, loads_config
from rocketbroker.common.atomic_file import backup_of, replace_contents
from rocketbroker.common.errors import CodecError
from rocketbroker.common.file_system import FileSystem
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

log = logging.getLogger(__name__)

FILE_NAME = "deletedTopics.json"


class DeletedTopics:
    """The marks, in memory and on disk.

    Args:
        path: the file.
        file_system: the disk.
    """

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        self._path = path
        self._file_system = file_system
        self.marks: dict[str, int] = {}
        # Error because of which the file still has a withdrawn mark, until it is rewritten.
        self._why_stale = ""
        # Deletions write the file on their thread; the flush thread retries failed writes.
        self._lock = threading.Lock()

    def load(self, report: list[str]) -> None:
        """Read the file, or report damage and read its backup (blocks)."""
        for path in (self._path, backup_of(self._path)):
            try:
                self.marks = _parse(loads_config(path.read_bytes()))
            except FileNotFoundError:
                continue
            except (OSError, CodecError, ValueError, TypeError) as error:
                report.append(f"{path} cannot be read, so that deleted topics may return: {error}")
            else:
                return

    def add(self, topics: Iterable[str], offset: int, min_offset: int) -> None:
        """Mark topics as deleted before a CommitLog offset (blocks); marks before the begin of the log are dropped.

        Raises:
            OSError: The disk failed; the marks are unchanged.
        """
        with self._lock:
            marks = {topic: mark for topic, mark in self.marks.items() if mark > min_offset}
            self._write(marks | dict.fromkeys(topics, offset))

    def _write(self, marks: dict[str, int]) -> None:
        replace_contents(self._path, dumps_config({"deleted": marks}), self._file_system)
        self.marks = marks
        if self._why_stale:
            log.warning("%s is rewritten: it no longer marks existing topics as deleted", self._path)
        self._why_stale = ""

    def take_back(self, topic: str, before: int) -> None:
        """Restore the earlier mark of a topic that stays, 0 for none (blocks).

        A failed write is logged, and retried by each ``write_again``.
        """
        with self._lock:
            self.marks = {**self.marks, topic: before}
            self._try_to_write()

    def write_again(self) -> None:
        """Rewrite the file if it still has withdrawn marks (blocks; on any thread)."""
        with self._lock:
            if self._why_stale:
                self._try_to_write()

    def _try_to_write(self) -> None:
        try:
            self._write(self.marks)
        except OSError as error:
            why = f"{error.strerror}"
            if why != self._why_stale:
                log.error(  # noqa: TRY400 - a traceback adds nothing
                    "%s marks existing topics as deleted and cannot be rewritten: %s; the write is retried until it "
                    "succeeds; a start after an earlier crash deletes those of the topics without newer messages",
                    self._path,
                    why,
                )
            self._why_stale = why

    def clamp(self, end_of_log: int) -> str:
        """Lower marks beyond the end of the log, which lost the messages before the mark: new messages will be there.

        Return a text about them, empty if there are none.

        Raises:
            OSError: The disk failed.
        """
        beyond = [topic for topic, mark in self.marks.items() if mark > end_of_log]
        if not beyond:
            return ""
        self.add(beyond, end_of_log, 0)
        return f"{self._path}: topics were deleted at offsets beyond the end of the CommitLog; their marks are lowered"

    def finish(self, queues: ConsumeQueueStore, min_offset: int) -> None:
        """Remove the queues of topics that were marked and not created again: a crash came between mark and removal.

        Do not call it after a clean stop, which waits for deletions: it would also remove existing topics whose mark
        could not be withdrawn.

        Args:
            queues: the queues.
            min_offset: begin of the log; deletions marked before it are complete.

        Raises:
            OSError: The disk failed.
        """
        for topic, mark in self.marks.items():
            if mark <= min_offset:
                continue
            last = [queue.entry(queue.max_offset - 1) for queue in queues.queues_of(topic).values()]
            if last and all(entry is None or entry.physical_offset < mark for entry in last):
                queues.delete_topic(topic)


def _parse(content: dict[str, object]) -> dict[str, int]:
    marks = content.get("deleted")
    if not isinstance(marks, dict):
        raise TypeError("deleted is not an object")
    return {str(topic): int(mark) for topic, mark in marks.items()}
