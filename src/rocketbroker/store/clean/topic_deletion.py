"""Deletion of topics with their queues (DefaultMessageStore.deleteTopics).

During a deletion the topics accept no messages. The deletion is noted on disk before the queues are removed
(``DeletedTopics``), so that a start never restores them; the flush thread removes their files.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rocketbroker.codec.storefile.config_tables import dumps_config, loads_config
from rocketbroker.common.atomic_file import backup_of, replace_contents
from rocketbroker.common.errors import CodecError, StoreError
from rocketbroker.common.file_system import FileSystem
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.flush.flush_service import CommitLogFlusher
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

log = logging.getLogger(__name__)

FILE_NAME = "deletedTopics.json"


class DeletedTopics:
    """Marks of deleted topics: ``config/deletedTopics.json``, by topic the CommitLog offset of its deletion.

    The messages of a deleted topic stay in the log until their file expires. A rebuild of queues from the log omits
    those before the mark, so that the topic does not return.
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
            OSError: The disk failed; the marks are unchanged, though the file may have the new ones.
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


# The topics take no message from the beginning, so that all of theirs are before the mark. Then, in this order:
#
# 1. The log is synced up to the mark. A power loss could otherwise leave a log that ends before it: messages stored
#    there later, in a topic that was created again, would count as deleted.
# 2. Messages that wait for their dispatch enter their queues: an entry that came later would need a file in the folder.
# 3. The mark is on disk before the folder is renamed. A stop between the two is finished by the next start
#    (``finish``): the topic has the mark, and no message after it. If either fails, the mark goes back, and the topic
#    stays: a failed sync of the note's folder may leave the new note, which would hide the topic from a rebuild.
# 4. The queues go out of service on the event loop. The flush thread, which may be syncing them, removes their files.
class TopicDeletion:
    """Deletion of topics, one call after the other."""

    def __init__(
        self,
        deleted: DeletedTopics,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        flusher: CommitLogFlusher,
        dispatch: Callable[[], None],
        executor: ThreadPoolExecutor,
        file_changes: asyncio.Lock,
    ) -> None:
        self._deleted = deleted
        self._commit_log = commit_log
        self._queues = queues
        self._flusher = flusher
        self._dispatch = dispatch
        self._executor = executor
        self._file_changes = file_changes
        self._tasks = TaskOwner("TopicDeletion")

    async def stop(self) -> None:
        """Wait for the running deletion, and start no other one."""
        async with self._file_changes:
            await self._tasks.stop()

    async def delete_topics(self, topics: set[str]) -> int:
        """Remove the queues of topics; return the number of topics with queues. Messages stay until their file expires.

        Raises:
            StoreError: The log could not be synced, or messages could not be entered into their queues first.
            OSError: The note could not be written or a folder renamed; that topic is unchanged.
        """
        # It runs to its end, even if the requester is gone.
        return await asyncio.shield(self._tasks.start(self._delete_all(topics), "delete topics"))

    async def _delete_all(self, topics: set[str]) -> int:
        async with self._file_changes:
            self._queues.close_topics(topics)
            try:
                mark, loop, removed = self._commit_log.max_offset, asyncio.get_running_loop(), 0
                flushed = await self._flusher.wait_flushed(mark)
                if not flushed.ok:
                    raise StoreError(flushed.reason)
                self._dispatch()
                for topic in sorted(topics):
                    await loop.run_in_executor(self._executor, self._mark_and_move, topic, mark)
                    removed += self._queues.take_out(topic)
                return removed
            finally:
                self._queues.open_topics(topics)

    def _mark_and_move(self, topic: str, mark: int) -> None:
        before = self._deleted.marks.get(topic, 0)
        try:
            self._deleted.add({topic}, mark, self._commit_log.min_offset)
            self._queues.move_away(topic)
        except OSError:
            self._deleted.take_back(topic, before)
            raise
