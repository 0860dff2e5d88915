"""Delivery of timer messages (org.apache.rocketmq.store.timer.TimerMessageStore).

Queue 0 of rmq_sys_wheel_timer holds them and is the source of truth: slots only say when each is due, and can be
rebuilt from the queue. ``config/timerProgress.json`` says which are delivered with their copies on disk. After a crash
it may be behind, and messages delivered since are delivered once more.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rocketbroker.broker.schedule_message_service import LEAST_PAUSE_S
from rocketbroker.broker.timer.timer_delivery import Rates, TimerDelivery
from rocketbroker.broker.timer.timer_progress import TimerProgress
from rocketbroker.broker.timer.timer_rewrite import timer_request
from rocketbroker.broker.timer.timer_wheel import SLOT_FILE_MS, Slot, SlotFiles, TimerWheel
from rocketbroker.broker.topic.topic_config_manager import TIMER_TOPIC
from rocketbroker.broker.waiting_messages import CopyDelivery, WaitingMessage
from rocketbroker.codec.remoting.bodies.offset import TimerMetricsSerializeWrapper
from rocketbroker.codec.storefile.checkpoint_layout import TimerCheckpoint, decode_timer_checkpoint
from rocketbroker.codec.storefile.timer_slots import is_delivered, slot_of
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import CodecError, StoreError
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.common.lifecycle import TICK_S, TaskOwner, until_tick
from rocketbroker.store.flush.flush_service import CommitLogFlusher
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

log = logging.getLogger(__name__)

# Messages read from the queue before the loop serves others.
BATCH = 64
# Time before its first slot at which a slot file is loaded.
LOAD_AHEAD_MS = 60_000
# Entries are written to slot files after so many or after this time; a start reads about as many again.
MANY_UNWRITTEN = 100_000
MOST_UNWRITTEN = 4 * MANY_UNWRITTEN
WRITE_INTERVAL_S = 60.0
RETRY_S = 1.0
_NEVER_MS = 2**62


# Seconds from now, as in RocketMQ's metrics.
SNAPSHOT_BOUNDS_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)


class TimerBypass:
    """Records in the timer's queue that another service takes: those of POP, for the revive topic.

    Args:
        topic: the real topic of these records.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        # Queue offsets of records that this process stored, which the timer need not read.
        self._stored: deque[int] = deque()

    def stored(self, queue_offset: int) -> None:
        """Note a stored record."""
        self._stored.append(queue_offset)

    def after(self, queue_offset: int) -> int:
        """Return ``queue_offset``, or the next one at which this process stored no such record."""
        stored = self._stored
        while stored and stored[0] <= queue_offset:
            queue_offset += stored.popleft() == queue_offset
        return queue_offset

    def clear(self) -> None:
        """Forget what was stored."""
        self._stored.clear()


class TimerFigures(NamedTuple):
    """Lag of the timer.

    Attributes:
        enqueue_lag: messages of its queue that it has not read.
        enqueue_latency_ms: age of the first of them.
        dequeue_lag: messages that are due and not delivered.
        dequeue_latency_ms: time since the first of them was due.
        waiting: messages that are not delivered.
        due_within: those due between each of ``SNAPSHOT_BOUNDS_S`` and the one before it.
    """

    enqueue_lag: int
    enqueue_latency_ms: int
    dequeue_lag: int
    dequeue_latency_ms: int
    waiting: int
    due_within: list[int]


class TimerMessageStore:
    """Loads the timer's queue into slots, and delivers what is due.

    Args:
        copies: stores the messages that are due, or sends them.
        flusher: syncs the log before slot files are written.
        progress: the delivered messages; loaded before the start.
        drain: waits until submitted tables are on disk; returns the paths of those that could not be written.
        bypass: records that the timer leaves alone.
    """

    def __init__(  # noqa: PLR0913 - a delivery depends on each of these
        self,
        config: MessageStoreConfig,
        copies: CopyDelivery,
        queues: ConsumeQueueStore,
        flusher: CommitLogFlusher,
        progress: TimerProgress,
        drain: Callable[[], Awaitable[Collection[Path]]],
        *,
        bypass: TimerBypass | None = None,
        clock: Clock,
        file_system: FileSystem = LOCAL,
    ) -> None:
        self._bypass = bypass or TimerBypass("")
        self._config = config
        self._copies = copies
        self._queues = queues
        self._flusher = flusher
        self.progress = progress
        self._drain = drain
        self._delivery = TimerDelivery(copies, clock, self._advance)
        self._clock = clock
        self._files = SlotFiles(Path(config.store_path_root_dir, "timerslots"), file_system)
        self._thread = ThreadPoolExecutor(1, "TimerFlushService")
        self._wheel = TimerWheel(self._files, self._thread)
        # Held while slot files are read or written.
        self._files_lock = asyncio.Lock()
        self._taken_in = 0
        self._is_loaded = False
        # Queue offset before which all messages were delivered by the master of this slave.
        self._passed = 0
        self._rates = Rates()
        self._written_at = 0.0
        self.precision_ms = config.timer_precision_ms
        self._slots = self.precision_ms, config.timer_roll_window_slot * self.precision_ms
        # Messages before this queue offset may have been read by an earlier process, and keep the slots that they had
        # with its precision and window.
        self._old_end = 0
        self._old_slots = self._slots
        self._tasks = TaskOwner("TimerMessageStore")

    # -- start and stop

    async def start(self) -> None:
        """Load the slots and start delivering; the progress must be loaded and the store open.

        Raises:
            StoreError: The slot files cannot be read.
        """
        self._thread = ThreadPoolExecutor(1, "TimerFlushService")
        await self.load()
        self._delivery.waits_for_master = False
        if self._copies.escapes:
            await self._check_begin()
        self.progress.flush()
        self._tasks.whenever(self.advance, RETRY_S, "advance")
        self._tasks.forever(self._keep, "keep")

    async def _check_begin(self) -> None:
        """Wait for the master if it may have older messages, which a slave that began later lacks.

        Each has a slot at most a roll window after it was stored, so before such a slot of the first message here.
        """
        queue = self._queue()
        if queue is None or not queue.min_offset:
            return
        found, _ = await self._delivery.read(queue, self._copies.entry_reader.entries(queue, queue.min_offset, 1))
        window_ms = max(self._slots[1], self._old_slots[1])
        delivered = self.progress.delivered
        if not found or not is_delivered(delivered, found[0].store_timestamp + window_ms, queue.min_offset - 1):
            self._delivery.wait_for_master(f"it may have some before {queue.min_offset}, where those here begin")

    async def stop(self) -> None:
        """Stop delivering and write everything, so that the next start continues here."""
        await self._tasks.stop()
        self._is_loaded = False
        try:
            if self._wheel.unwritten_count or self.progress.is_behind:
                await self.write()
        except (OSError, StoreError) as error:
            log.error("timer: the slot files could not be written, so the next start reads the queue again: %s", error)  # noqa: TRY400
        self.progress.flush()
        self._thread.shutdown()

    async def load(self) -> None:
        """Check progress and slot files against the queue; entries that they lack are read from the queue again.

        Raises:
            StoreError: The slot files cannot be read.
        """
        queue = self._queue()
        begin, end = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
        file = self.progress.file
        delivered: Iterable[tuple[int, int]] = self.progress.durable
        if not self.progress.found:
            delivered = self._delivered_by_rocketmq()
        try:
            taken_in = await asyncio.get_running_loop().run_in_executor(self._thread, self._load_files, begin, end)
        except OSError as error:
            raise StoreError(
                f"the slot files of timer messages cannot be read: {error}; check the disk, then start again"
            ) from error
        self._wheel = TimerWheel(self._files, self._thread)
        self._taken_in, self._is_loaded = taken_in, True
        self.progress.waiting.begin(self._clock.time_ms())
        waiting = bool(self._files.starts) or taken_in < end
        if waiting and file.precision_ms not in {0, self.precision_ms}:
            # With a coarser precision a cancel would look for its message in another slot.
            log.warning("timerPrecisionMs stays %s until all waiting timer messages are delivered", file.precision_ms)
            self.precision_ms = file.precision_ms
        self._delivery.precision_ms = self.precision_ms
        self._slots = self.precision_ms, self._config.timer_roll_window_slot * self.precision_ms
        self._old_end = end
        # The times at which Apache RocketMQ stored messages again are unknown: they keep their own slot.
        self._old_slots = (file.precision_ms, file.roll_window_ms) if self.progress.found else (1, _NEVER_MS)
        self.progress.begin(delivered, end, *self._slots)
        self.progress.took_in(taken_in, self._files.counts())

    def _load_files(self, begin: int, end: int) -> int:
        """Load the slot files; return the queue offset at which to start reading the queue."""
        file = self.progress.file
        wrong = self._files.load(file.slot_entries)
        if file.queue_offset > end:
            wrong.append(
                f"{self.progress.path} is at offset {file.queue_offset}, beyond the end {end} of the timer's queue"
            )
        waiting = self.progress.waiting
        # Counts of a file that has none, that a slave has followed since, or of messages that a power loss took.
        is_counted = 0 < waiting.counted_to <= end
        if not wrong and (is_counted or not file.slot_entries):
            if not is_counted:
                waiting.restore({}, 0)
            return max(file.queue_offset, begin) if self.progress.found else begin
        for text in wrong:
            log.error("%s; the timer's queue is read again from its start", text)
        if not wrong:
            log.info("timer: the queue is read from its start, to count the waiting messages by topic")
        self._files.wipe()
        waiting.restore({}, 0)
        return begin

    def _delivered_by_rocketmq(self) -> list[tuple[int, int]]:
        """Return the deliveries that Apache RocketMQ recorded in a store that was taken over."""
        path = self._config.config_dir / "timercheck"
        try:
            found = decode_timer_checkpoint(path.read_bytes())
        except FileNotFoundError:
            if (queue := self._queue()) is not None and queue.max_offset:
                text = "%s is missing: timer messages still in the store are delivered again"
                log.warning(text, self.progress.path)
            return []
        except (OSError, CodecError) as error:
            log.error("%s is unreadable, so timer messages may be delivered again: %s", path, error)  # noqa: TRY400
            return []
        return [(found.last_read_time_ms, found.last_timer_queue_offset)]

    def _queue(self) -> ConsumeQueueInterface | None:
        return self._queues.find(TIMER_TOPIC, 0)

    # -- reading and delivering

    async def advance(self) -> float:
        """Read new messages and deliver a batch; return the seconds until the next batch.

        Raises:
            OSError: The disk failed on a slot file.
            StoreError: The disk cannot be read.
        """
        # A message may arrive during the pause that is due before its end: it must not be later than one precision.
        idle_s = min(TICK_S, self.precision_ms / 1000)
        queue = self._queue()
        config = self._config
        if queue is None or self._delivery.waits_for_master:
            return idle_s
        if not config.timer_stop_enqueue and not await self._take_in(queue):
            return idle_s
        if config.timer_stop_dequeue:
            return idle_s
        now = self._clock.time_ms()
        slot_ms, file = self._wheel.first_slot_ms, self._wheel.next_file
        due_ms = now - self.precision_ms
        if file is not None and self._is_to_be_loaded(file, slot_ms, now):
            async with self._files_lock:
                await self._wheel.load_next(self.progress.delivered)
            return 0.0
        if slot_ms is None:
            return idle_s
        if slot_ms > due_ms:
            return min(max((slot_ms - due_ms) / 1000, LEAST_PAUSE_S), idle_s)
        return await self._delivery.deliver_batch(queue, slot_ms, self._wheel.slot(slot_ms))

    def _is_to_be_loaded(self, file: int, slot_ms: int | None, now: int) -> bool:
        """Return true to load the earliest file that is not in memory before delivering the earliest slot that is."""
        due_ms = now - self.precision_ms
        if file <= due_ms:
            return slot_ms is None or file <= slot_ms
        # Not due yet: loading it must neither delay due messages nor wait for the disk.
        nothing_due = slot_ms is None or slot_ms > due_ms
        return file <= now + LOAD_AHEAD_MS and nothing_due and not self._files_lock.locked()

    async def _take_in(self, queue: ConsumeQueueInterface) -> bool:
        """Read the messages that the queue holds now; later ones must not delay due messages.

        Return false if a slave cannot read one.
        """
        reader = self._copies.entry_reader
        end = queue.max_offset
        while self._taken_in < end:
            if self._wheel.unwritten_count >= MOST_UNWRITTEN:
                await self.write()  # messages come faster than the disk takes them
            self._taken_in = self._bypass.after(max(self._taken_in, queue.min_offset))
            entries = reader.entries(queue, self._taken_in, BATCH) if self._taken_in < end else []
            if not entries:
                return True
            messages, missing = await self._delivery.read(queue, entries)
            if missing is not None:
                self._delivery.wait_for_message(missing)
                return False
            for found in messages:
                self._take_in_one(found)
            self._taken_in = entries[-1][0] + 1
            self.progress.waiting.added_to(self._taken_in)
            await asyncio.sleep(0)  # let others run
        return True

    def _take_in_one(self, found: WaitingMessage) -> None:
        queue_offset, store_timestamp, message = found
        place = self._copies.waiting.place(message.properties)
        if place is not None and place[0] == self._bypass.topic:
            return
        request = timer_request(message.properties, place)
        if request is None or place is None:
            log.error("timer message %s is discarded: it names no delivery time, topic and queue", queue_offset)
            return
        precision_ms, window_ms = self._old_slots if queue_offset < self._old_end else self._slots
        slot_ms = slot_of(request.out_ms, store_timestamp, precision_ms, window_ms)
        if not request.is_delete and self._copies.meters is not None:
            self._copies.meters.timer_enqueued[place[0]] += 1
        # A cancel is kept while its slot is: the message that it cancels may be delivered later.
        if request.is_delete or not is_delivered(self.progress.delivered, slot_ms, queue_offset):
            self._wheel.add(slot_ms, queue_offset, is_delete=request.is_delete)
            if not request.is_delete:
                self.progress.waiting.add(place[0], queue_offset, self._clock.time_ms())

    def _advance(self, slot_ms: int, slot: Slot, delivered_to: int, topics: Sequence[str]) -> None:
        """Note that messages of these topics in the earliest slot are delivered, up to a queue offset."""
        slot.deliver_to(delivered_to)
        self.progress.waiting.remove(topics, self._clock.time_ms())
        if slot.done == len(slot.messages) and slot.deletes_read == len(slot.deletes):
            self._wheel.remove_first()
            is_empty = self._wheel.first_slot_ms is None and self._wheel.next_file is None
            if is_empty and self._taken_in >= self.progress.waiting.counted_to:
                self.progress.waiting.clear()
            # No message read so far has an earlier slot.
            delivered_to = self._taken_in
        self.progress.advance()
        self.progress.deliver(slot_ms + 1, delivered_to)
        self._copies.dispatch()

    # -- writing

    async def _keep(self) -> None:
        """Write progress and slot files periodically."""
        while True:
            await asyncio.sleep(until_tick(self._config.timer_flush_interval_ms / 1000))
            self._rates.measure(asyncio.get_running_loop().time(), self._taken_in, self._delivery.number)
            try:
                await self._write_when_due()
                self.progress.flush()
            except (OSError, StoreError):
                log.exception(
                    "timer: slot files cannot be written; missing entries stay in memory until the next attempt"
                )

    async def _write_when_due(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._written_at < WRITE_INTERVAL_S and self._wheel.unwritten_count < MANY_UNWRITTEN:
            return
        self._written_at = now
        if self._wheel.unwritten_count:
            await self.write()
        await self.remove_delivered_files()

    async def write(self) -> None:
        """Write the entries that no file has yet, and the progress.

        Raises:
            OSError: The disk failed on a slot file; the next call retries the entries that were not written.
            StoreError: The log could not be synced; the next call retries as well.
        """
        async with self._files_lock:
            entries, taken_in = self._wheel.begin_write(), self._taken_in
            try:
                # A power loss must not take messages whose entries survive, nor the copies of messages without an
                # entry.
                flushed = await self._flusher.sync()
                if not flushed.ok:
                    raise StoreError(flushed.reason)
                self.progress.advance()
                loop = asyncio.get_running_loop()
                appending = loop.run_in_executor(self._thread, self._files.append_all, entries, self.progress.durable)
                await _to_its_end(appending)
            finally:
                self._wheel.end_write()
            self.progress.took_in(taken_in, self._files.counts())
        self.progress.flush()

    async def remove_delivered_files(self) -> None:
        """Remove slot files whose messages are all delivered, after that progress is on disk.

        Raises:
            OSError: The disk failed; the next start removes them.
        """
        async with self._files_lock:
            self._note_that_time_passed()
            retired = self._files.retire(self.progress.durable)
            if not retired:
                return
            self.progress.took_in(self.progress.file.queue_offset, self._files.counts())
            self.progress.flush()
            if self.progress.path not in await self._drain():
                await asyncio.get_running_loop().run_in_executor(self._thread, self._files.remove, retired)

    def _note_that_time_passed(self) -> None:
        """Advance the progress to the present if nothing is due and that lets a slot file be removed."""
        due_ms = self._clock.time_ms() - self.precision_ms
        first = [ms for ms in (self._wheel.first_slot_ms, self._wheel.next_file) if ms is not None]
        nothing_due = min(first, default=due_ms + 1) > due_ms and not self._delivery.waits_for_master
        if nothing_due and any(start + SLOT_FILE_MS <= due_ms for start in self._files.starts):
            self.progress.deliver(due_ms + 1, self._taken_in)
            self.progress.advance()

    # -- replication

    def checkpoint(self) -> TimerCheckpoint:
        """Return the deliveries whose copies are on disk, for slaves: all before a time and a queue offset."""
        before_ms, before_offset = max(self.progress.durable, key=lambda pair: pair[1], default=(0, 0))
        return TimerCheckpoint(
            last_read_time_ms=before_ms,
            last_timer_queue_offset=before_offset,
            master_timer_queue_offset=before_offset,
        )

    def follow(self, checkpoint: TimerCheckpoint) -> None:
        """Take over the deliveries of a slave's master; the service must not run."""
        self.progress.follow(
            checkpoint.last_read_time_ms,
            checkpoint.last_timer_queue_offset,
            self.precision_ms,
            self._config.timer_roll_window_slot * self.precision_ms,
        )

    # A slave reads no slots, but its retention must know which messages its master still has to deliver: after a
    # promotion nobody else has them. The progress it follows names pairs of slot time and queue offset, and the slot of
    # a message depends on its own time and on the master's settings, so each message has to be read, once. The own time
    # is the latest slot that a message can have: one that was stored again earlier counts as waiting until then, which
    # keeps a file longer and never too short. Missing and damaged messages cannot be delivered, here or later.
    async def pass_delivered(self) -> None:
        """Find the first message that the master of this slave still has to deliver.

        Raises:
            StoreError: The disk cannot be read.
        """
        queue, reader, waiting = self._queue(), self._copies.entry_reader, self._copies.waiting
        while not self._is_loaded and queue is not None:
            self._passed = max(self._passed, queue.min_offset)
            entries = reader.entries(queue, self._passed, BATCH)
            for record in await reader.records(queue, entries):
                found = waiting.read(record)
                place = waiting.place(found.message.properties)
                request = timer_request(found.message.properties, place)
                if place is not None and place[0] == self._bypass.topic:
                    continue
                if request and not is_delivered(self.progress.durable, request.out_ms, found.queue_offset):
                    self._passed = found.queue_offset
                    return
            if not entries:
                return
            self._passed = entries[-1][0] + 1
            await asyncio.sleep(0)  # let others run

    # -- reporting

    def first_pending_queue_offset(self) -> int | None:
        """Return the queue offset of the oldest message not delivered or not read yet, ``None`` without one."""
        queue = self._queue()
        if queue is None:
            return None
        if self._is_loaded:
            first = self._wheel.first_queue_offset
            first = self._taken_in if first is None else min(first, self._taken_in)
        else:
            first = self._passed
        first = max(first, queue.min_offset)
        return first if first < queue.max_offset else None

    def first_pending_offset(self) -> int | None:
        """Return the CommitLog offset of that message."""
        queue, first = self._queue(), self.first_pending_queue_offset()
        entry = queue.entry(first) if queue is not None and first is not None else None
        return entry.physical_offset if entry else None

    async def figures(self) -> TimerFigures:
        """Return how far behind the timer is, for metrics; the oldest message is read on a thread."""
        queue, now, taken_in = self._queue(), self._clock.time_ms(), self._taken_in
        behind = max(queue.max_offset - taken_in, 0) if queue is not None and self._is_loaded else 0
        stored_ms = 0
        if queue is not None and behind:
            reader = self._copies.entry_reader
            records = await reader.records(queue, reader.entries(queue, taken_in, 1))
            stored_ms = self._copies.waiting.read(records[0]).store_timestamp if records else now
        due, first_ms = self._wheel.due(now - self.precision_ms), self._wheel.first_slot_ms
        return TimerFigures(
            behind,
            max(now - stored_ms, 0) if behind else 0,
            due,
            max(now - self.precision_ms - first_ms, 0) if due and first_ms is not None else 0,
            self._wheel.count(),
            self._wheel.due_within(now, SNAPSHOT_BOUNDS_S),
        )

    def metrics(self) -> TimerMetricsSerializeWrapper | None:
        """Return the waiting messages by topic; ``None`` while this broker delivers none, as a slave."""
        return self.progress.waiting.metrics() if self._is_loaded else None

    def runtime_info(self) -> dict[str, str]:
        """Return the keys of timer messages for GET_BROKER_RUNTIME_INFO (prepareRuntimeInfo)."""
        queue, now = self._queue(), self._clock.time_ms()
        first = self._wheel.first_slot_ms
        behind_ms = max(now - self.precision_ms - first, 0) if first is not None else 0
        return {
            "timerReadBehind": str(behind_ms // 1000),
            "timerOffsetBehind": str(queue.max_offset - self._taken_in if queue is not None else 0),
            "timerCongestNum": str(self._wheel.count()),
            "timerEnqueueTps": f"{self._rates.taken_in:.1f}",
            "timerDequeueTps": f"{self._rates.delivered:.1f}",
        }


class TimerFollower:
    """Keeps the first pending message of a slave's timer up to date, for retention.

    Args:
        interval_s: seconds between two looks.
    """

    def __init__(self, timer: TimerMessageStore, interval_s: float) -> None:
        self._timer = timer
        self._interval_s = interval_s
        self._tasks = TaskOwner("TimerFollower")

    async def start(self) -> None:
        """Begin to pass what the master has delivered, at each interval."""
        self._tasks.every(self._interval_s, self._timer.pass_delivered, "pass")

    async def stop(self) -> None:
        await self._tasks.stop()


async def _to_its_end(future: asyncio.Future[None]) -> None:
    """Wait for a thread to finish, even when cancelled: it works on data that is used afterwards."""
    try:
        await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise
