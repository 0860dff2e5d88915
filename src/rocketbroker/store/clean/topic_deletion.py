"""Deletion of topics with their queues (DefaultMessageStore.deleteTopics).

During a deletion the topics accept no messages. The deletion is noted on disk before the queues are removed
(``DeletedTopics``), so that a start never restores them; the flush thread removes their files.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rocketbroker.common.errors import StoreError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.store.clean.deleted_topics import DeletedTopics
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.flush.flush_service import CommitLogFlusher
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore


class TopicDeletion:
    """Deletion of topics, one call after the other.

    Args:
        deleted: the marks of deleted topics.
        commit_log: holds the messages, which stay until their file expires.
        queues: the queues.
        flusher: syncs the log.
        dispatch: enters stored messages into their queues.
        executor: runs the file work.
        file_changes: lock for removals of files.
    """

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
                mark = self._commit_log.max_offset
                # A power loss must not leave a log that ends before the mark: messages stored after it are not deleted.
                flushed = await self._flusher.wait_flushed(mark)
                if not flushed.ok:
                    raise StoreError(flushed.reason)
                # From here on all their messages have an entry; a missing one might need a file in the folder.
                self._dispatch()
                return sum([await self._delete(topic, mark) for topic in sorted(topics)])
            finally:
                self._queues.open_topics(topics)

    async def _delete(self, topic: str, mark: int) -> bool:
        await asyncio.get_running_loop().run_in_executor(self._executor, self._mark_and_move, topic, mark)
        return self._queues.take_out(topic)

    def _mark_and_move(self, topic: str, mark: int) -> None:
        before = self._deleted.marks.get(topic, 0)
        self._deleted.add({topic}, mark, self._commit_log.min_offset)
        try:
            self._queues.move_away(topic)
        except OSError:
            self._deleted.take_back(topic, before)
            raise
