"""Parts of a message store, started and stopped together (org.apache.rocketmq.store.MessageStore).

Puts, gets and dispatch run on the event loop's thread. Allocation, syncs and cold reads have threads of their own.
"""

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType

from rocketbroker.codec.message.message_const import parse_delay_levels
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.common.lifecycle import TICK_S, TaskOwner
from rocketbroker.store.clean import topic_deletion
from rocketbroker.store.clean.topic_deletion import DeletedTopics, TopicDeletion
from rocketbroker.store.commitlog.commit_log import ALLOCATE_STEP, CommitLog
from rocketbroker.store.commitlog.commit_log_walker import RECORD_ROOM
from rocketbroker.store.commitlog.put_message import Acknowledgements, PutWait, Refusal, StandingRefusals
from rocketbroker.store.dispatch.commit_log_dispatcher import CommitLogDispatcher, MessageArrivingListener
from rocketbroker.store.dispatch.reput_message_service import DamageListener, ReputMessageService
from rocketbroker.store.flush.flush_consume_queue_service import ConsumeQueueFlusher, IndexSync
from rocketbroker.store.flush.flush_service import CommitLogFlusher
from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from rocketbroker.store.index.index_service import IndexService
from rocketbroker.store.logfile.allocate_mapped_file_service import AllocateMappedFileService
from rocketbroker.store.logfile.damaged_files import set_aside
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.store.queue.batch_consume_queue import BatchQueues
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.checked_reader import CheckedReader, DamageLog
from rocketbroker.store.read.message_fetcher import EntryReader, MessageFetcher
from rocketbroker.store.read.message_queries import MessageQueries
from rocketbroker.store.read.queue_reader import QueueReader
from rocketbroker.store.recovery import loaded_store, queue_recovery
from rocketbroker.store.recovery.loaded_store import RebuildNote, RecoveryReport, load
from rocketbroker.store.recovery.store_lock import StoreLock
from rocketbroker.store.recovery.store_recovery import recover
from rocketbroker.store.replica_log import LogTruncation, ReplicaLog

log = logging.getLogger(__name__)

# Longest time that keys wait for others before they are written to the index; shorter than the checkpoint steps back.
_INDEX_TICK_S = 1.0
_COLD_READERS = 2
# Seconds between two lines of a failure that lasts.
_REPEAT_LOG_S = 60.0
_DAMAGE = "commitlog: no sound record between %s and %s: %s; messages there are in no queue"


class MessageStore:
    """A store directory that is open for reading and writing.

    Args:
        store_host: the broker's address as records hold it.
        listener: called for messages as they become readable.
        topics: topics by name; their attributes say which have batch queues.
        replicated: the wait of each message for slaves (SYNC_MASTER), ``None`` in other roles.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        store_host: bytes,
        listener: MessageArrivingListener,
        clock: Clock,
        file_system: FileSystem = LOCAL,
        topics: Mapping[str, TopicConfig] = MappingProxyType({}),
        replicated: PutWait | None = None,
    ) -> None:
        self.config = config
        self._clock = clock
        self._file_system = file_system
        self._tasks = TaskOwner("MessageStore")
        # Held while files are removed, or the log is truncated.
        self.file_changes = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cold_readers = ThreadPoolExecutor(_COLD_READERS, thread_name_prefix="ColdRead")
        self._delay_levels = parse_delay_levels(config.message_delay_level)
        self._sync_flush = config.flush_disk_type == "SYNC_FLUSH"
        self.boot_time_ms = clock.time_ms()
        # Known once the store is open.
        self.recovery_report = RecoveryReport(clean_stop=True)
        # Reasons to reject messages; each is set by the part that finds it.
        self.refusals = StandingRefusals()
        self.refusals.set(Refusal.NOT_STARTED, "the store is not open yet; it accepts messages once it has recovered")
        # Files. The lock is acquired by ``start``, or before it to read other files of the folder.
        self.lock = StoreLock(Path(config.store_path_root_dir), config.abort_path, file_system)
        self.checkpoint = StoreCheckpoint(config.checkpoint_path, file_system)
        self._checkpoint_logged_at = float("-inf")
        self._ends_path = config.config_dir / queue_recovery.QUEUE_ENDS_FILE
        self._deleted_topics = DeletedTopics(config.config_dir / topic_deletion.FILE_NAME, file_system)
        self.allocate_service = AllocateMappedFileService(file_system)
        size = config.mapped_file_size_commit_log
        log_files = MappedFileQueue(config.commit_log_dir, size, min(ALLOCATE_STEP, size), file_system)
        longest = config.max_message_size + RECORD_ROOM
        self.commit_log = CommitLog(log_files, self.allocate_service, store_host, longest)
        size = config.mapper_file_size_batch_consume_queue
        batch_queues = BatchQueues(config.batch_consume_queue_dir, size, topics, self.commit_log.bytes_at)
        size = config.mapped_file_size_consume_queue
        self.queues = ConsumeQueueStore(config.consume_queue_dir, size, file_system, batch_queues)
        self.index_service: IndexService | None = None
        if config.message_index_enable:
            slots, entries = config.max_hash_slot_num, config.max_index_num
            self.index_service = IndexService(config.index_dir, slots, entries, self._index_name, file_system)
        # Writing
        self.dispatcher = CommitLogDispatcher(self.index_service, listener)
        self.flusher = CommitLogFlusher(
            log_files,
            config,
            self.checkpoint,
            self.refusals,
            self._last_stored,
            self._dispatch_synced if self._sync_flush else None,
            self._sync_failed,
        )
        self.appender = MessageAppender(
            self.commit_log,
            self.queues,
            self.dispatcher,
            config,
            clock,
            self._delay_levels,
            self.refusals,
            self.flusher if self._sync_flush else None,
        )
        self.acknowledgements = Acknowledgements(self.flusher.acknowledge if self._sync_flush else None, replicated)
        self.queue_flusher = ConsumeQueueFlusher(
            self.queues.changed_files,
            self.commit_log,
            config.flush_interval_consume_queue / 1000,
            lambda: self.appender.last_dispatched_timestamp,
            self._queues_flushed,
        )
        self.index_sync: IndexSync | None = None
        if self.index_service is not None:
            self.index_sync = IndexSync(self.index_service, self.checkpoint, self._last_stored)
        # Reading. The bytes of the log that count as being in memory: StoreUtil.TOTAL_PHYSICAL_MEMORY_SIZE.
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        hot_bytes = memory * config.access_message_in_memory_max_ratio // 100
        self.damage_log = DamageLog()
        checked_reader = CheckedReader(self.commit_log, self.damage_log, self._cold_readers)
        reader = self.reader = QueueReader(self.commit_log, config, hot_bytes, checked_reader)
        self.entry_reader = EntryReader(self.commit_log, checked_reader)
        self.fetcher = MessageFetcher(self.commit_log, self.queues, reader, checked_reader)
        self.queries = MessageQueries(self.commit_log, self.queues, reader, self.dispatcher, config)
        # Cleaning
        self.deletion = TopicDeletion(
            self._deleted_topics,
            self.commit_log,
            self.queues,
            self.flusher,
            self.appender.dispatch,
            self._cold_readers,
            self.file_changes,
        )

    def _index_name(self) -> str:
        now = self._clock.time_ms()
        return time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1000)) + f"{now % 1000:03d}"

    def _make_reput(self, on_damage: DamageListener) -> ReputMessageService:
        marks = self._deleted_topics
        return ReputMessageService(
            self.commit_log, self.queues, self.dispatcher, self._delay_levels, on_damage, lambda: marks.marks
        )

    def make_replica_log(self) -> ReplicaLog:
        """Return a log that copies another store's into this one."""
        truncation = LogTruncation(
            self.commit_log,
            self.queues,
            self.dispatcher,
            self.flusher,
            self.queue_flusher,
            self.checkpoint,
            self._deleted_topics,
            self.file_changes,
            self._ends_path,
            self._file_system,
        )
        reput = self._make_reput(partial(log.error, _DAMAGE))
        return ReplicaLog(
            self.commit_log, reput, self.appender, self.flusher, truncation, self.refusals, sync_flush=self._sync_flush
        )

    # -- start and stop

    async def start(self) -> None:
        """Open the store: lock, load, recover, start the threads.

        Raises:
            StoreError: The store is in use, a file is missing or has another size, or the disk is full or unreadable.
        """
        self._loop = asyncio.get_running_loop()
        opening = self._loop.run_in_executor(None, self._open)
        try:
            report = self.recovery_report = await asyncio.shield(opening)
        except BaseException as error:
            # The thread uses the files until it ends, even if this start was cancelled.
            await asyncio.wait([opening])
            self._release()
            if isinstance(error, OSError):
                text = f"{self.config.store_path_root_dir} (storePathRootDir) cannot be opened: {error}"
                raise StoreError(text) from error
            raise
        (log.warning if report.damage or not report.clean_stop else log.info)("%s", report)
        self.flusher.start()
        self.queue_flusher.start()
        self._tasks.every(TICK_S, self.flusher.look, "flush log")
        self._tasks.every(TICK_S, self.queue_flusher.look, "flush queues")
        if self.index_service is not None:
            self._tasks.every(_INDEX_TICK_S, self.dispatcher.enter_keys, "index")
        self.allocate_service.busy_after_s = self.config.os_page_cache_busy_time_out_mills / 1000
        self.refusals.clear(Refusal.NOT_STARTED)

    def _open(self) -> RecoveryReport:
        self.lock.acquire()
        clean = self.lock.was_clean
        # A crash after a change must leave an unclean store.
        changing = partial(self.lock.mark_running, os.getpid())
        note = RebuildNote(self.config.config_dir / loaded_store.REBUILD_NOTE_FILE, self._file_system)
        parts = self.commit_log, self.queues, self.index_service
        loaded = load(*parts, self._ends_path, note, changing, clean_stop=clean)
        try:
            self.checkpoint.load(self._clock.time_ms())
        except StoreError as error:
            # Without it only a clean stop shows what is on disk; what queues and index lack is not known yet.
            note.write(0)
            changing()
            aside = set_aside(self.config.checkpoint_path, self._file_system)
            loaded.report.damaged_files.append(f"{error}; set aside as {aside.name}")
        self._deleted_topics.load(loaded.report.damaged_files)
        if not clean:
            self._deleted_topics.finish(self.queues, self.commit_log.min_offset)
        reput = self._make_reput(partial(loaded.report.add_range, self.commit_log.queue))
        report = recover(loaded, self.checkpoint, reput, changing)
        # The next sync records this time even when no message comes. Otherwise each kill would add to the unknown part.
        self.appender.last_store_timestamp = report.last_stored_ms
        if why := self._deleted_topics.clamp(report.end_of_log):
            report.damaged_files.append(why)
        self._trust_from_here_on()
        if self._sync_flush:
            self.flusher.flush()
            if self.flusher.error:
                raise StoreError(f"messages that a killed broker left are not on disk yet: {self.flusher.error}")
        self.commit_log.warm_up()
        self.lock.note_open()
        return report

    def _trust_from_here_on(self) -> None:
        """Make reads check all messages stored so far, but not later ones."""
        for queue in self.queues:
            queue.trusted_from = queue.next_offset

    def _sync_failed(self) -> None:
        """Distrust stored messages: the kernel may have dropped them and read back the disk (on a flush thread)."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._trust_from_here_on)

    async def stop(self) -> None:
        """Write everything to disk, mark the store as clean, and release all files."""
        self.refusals.set(Refusal.SHUTTING_DOWN, "the store is shutting down")
        await self.deletion.stop()
        await self._tasks.stop()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.flusher.stop)
        try:
            self.appender.dispatch()
        except StoreError:
            log.exception("store: some messages are stored but not readable before the next start")
        self.dispatcher.flush_index()
        await loop.run_in_executor(None, self._close)

    def _close(self) -> None:
        self.queue_flusher.stop()
        self.allocate_service.stop()
        self._end_reads()
        try:
            self._leave_clean()
        except OSError:
            log.exception("store: could not be left clean; the next start checks it")
        self._release()

    # The abort file is removed last. A power loss before that leaves an unclean store, which is checked; after that,
    # all that the checkpoint and the ends of queues say is on disk. Whatever is not makes the stop unclean: only an
    # unclean start looks for messages that queues or index lack.
    def _leave_clean(self) -> None:
        """Mark the store as clean if all of it is on disk."""
        index = self.index_service
        is_whole = not (self.flusher.error or self.queue_flusher.error or self.appender.has_pending)
        if index is not None and self.index_sync is not None:
            self.index_sync.sync()
            if index.waiting or self.index_sync.error:
                is_whole = False
            else:
                self.checkpoint.advance(index_msg_timestamp=self._last_stored())
        self.checkpoint.save()
        if is_whole:
            # With the ends of log and queues, so that the next start detects lost files.
            log_range = self.commit_log.min_offset, self.commit_log.max_offset
            names = None if index is None else index.file_names
            queue_recovery.write_queue_ends(self._ends_path, log_range, self.queues, names, self._file_system)
            self.lock.mark_stopped()

    def _end_reads(self) -> None:
        self.queries.close()
        self._cold_readers.shutdown()

    def _release(self) -> None:
        """Close all files and end the threads."""
        self.allocate_service.stop()
        self._end_reads()
        self.queues.close()
        if self.index_service is not None:
            self.index_service.close()
        self.commit_log.queue.close()
        self.lock.release()

    def _last_stored(self) -> int:
        return self.appender.last_store_timestamp

    def _dispatch_synced(self) -> None:
        """Make messages that are on disk readable (SYNC_FLUSH)."""
        try:
            self.appender.dispatch()
        except StoreError:
            log.exception("store: some messages are stored but not readable yet")

    def _queues_flushed(self, stored: int | None) -> None:
        if stored is None:
            self._sync_failed()
        else:
            self.checkpoint.advance(logics_msg_timestamp=stored)
        try:
            self.checkpoint.save()
        except OSError as error:
            # Each round tries again.
            if (now := self._clock.monotonic()) >= self._checkpoint_logged_at + _REPEAT_LOG_S:
                self._checkpoint_logged_at = now
                text = "checkpoint: %s cannot be written: %s; until it is, a start checks more of the log"
                log.error(text, self.config.checkpoint_path, error)  # noqa: TRY400 - the traceback says nothing
        if self.index_sync is not None:
            self.index_sync.sync_if_due()
        self.queues.remove_retired()
        self._deleted_topics.write_again()
