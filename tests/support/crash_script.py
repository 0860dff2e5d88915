"""A seeded run of operations on a store over a recording file system, and its invariants after a crash.

The journal has the marks of what was promised to whom: a crash at any point of it may take what was promised later, and
under ASYNC_FLUSH what was not on disk.
"""

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager, OffsetRecovery
from rocketbroker.client.core.pull_result import unwrap_inner_batches
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus
from rocketbroker.store.dispatch.commit_log_dispatcher import MessageArrivingListener, NoListener
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock
from tests.support.recorded_script import OnDisk, Operation, RecordedScript, consumer_offsets, nothing_to_wait_for
from tests.support.recording_file_system import Event, Loss, RecordingFileSystem
from tests.support.stores import (
    ALWAYS,
    V4_HOST,
    batch,
    batch_run,
    batch_topic_table,
    flushed,
    inner_batch,
    message,
    message_run,
    read_queue,
    store_config,
)

Queue = tuple[str, int]
# Of these a batch is one record.
BATCHES: Queue = ("C", 0)
QUEUES: list[Queue] = [("A", 0), ("A", 1), ("B", 0), BATCHES]
_TOPICS = batch_topic_table([BATCHES[0]])
DELETED: Queue = ("D", 0)
GROUP = "group"


class Trying(NamedTuple):
    """Messages are on their way: they may be there after a crash, or not."""

    queue: Queue
    bodies: list[bytes]


class Put(NamedTuple):
    """A message is in the log."""

    queue: Queue
    queue_offset: int
    body: bytes
    keys: tuple[str, ...]


class Committed(NamedTuple):
    """The group's offset in a queue is on disk."""

    queue: Queue
    offset: int


class Deleted(NamedTuple):
    """A topic is gone."""

    topic: str


@dataclass
class Promised:
    """Promises of the marks up to a point."""

    puts: dict[Queue, list[Put]] = field(default_factory=lambda: defaultdict(list))
    on_disk: dict[Queue, int] = field(default_factory=lambda: defaultdict(int))
    committed: dict[Queue, int] = field(default_factory=dict)
    # By queue and offset all bodies that ever stood there.
    bodies: dict[tuple[Queue, int], set[bytes]] = field(default_factory=lambda: defaultdict(set))
    trying: Trying = field(default_factory=lambda: Trying(DELETED, []))

    def may_be(self, queue: Queue, queue_offset: int, body: bytes) -> bool:
        """Return true if a message with that body may be at that place."""
        return body in self.bodies[queue, queue_offset] or (self.trying.queue == queue and body in self.trying.bodies)

    def take(self, mark: object) -> None:
        """Apply one mark."""
        match mark:
            case Put(queue, queue_offset, body, _):
                self.puts[queue].append(mark)
                self.bodies[queue, queue_offset].add(body)
            case Trying():
                self.trying = mark
            case OnDisk():
                self.on_disk.update({queue: len(puts) for queue, puts in self.puts.items()})
            case Committed(queue, offset):
                self.committed[queue] = offset
            case Deleted(topic):
                for queue in [queue for queue in self.puts if queue[0] == topic]:
                    del self.puts[queue]
                    self.on_disk.pop(queue, None)


def _no_fault(_operation: str, _path: Path) -> None:
    """Inject no fault."""


class CrashScript(RecordedScript[Promised]):
    """A run of puts, offsets and deleted topics."""

    def __init__(self, root: Path, flush_disk_type: str, seed: int, **settings: object) -> None:
        super().__init__(root, flush_disk_type, seed)
        self._settings = {"flush_disk_type": flush_disk_type, **settings}
        self._config = store_config(root / "store", **self._settings)
        self._offsets = consumer_offsets(self._config, self._clock, self.file_system)
        self._store = self._new_store()
        # Writes that the store or a table was refused, by the disk or because of it.
        self.refused: list[str] = []
        self.refused_last = False

    @property
    def _running(self) -> MessageStore:
        return self._store

    def _new_store(self) -> MessageStore:
        return MessageStore(self._config, V4_HOST, self._listener(), self._clock, self.file_system, _TOPICS)

    def _listener(self) -> MessageArrivingListener:
        return NoListener()

    async def _start(self) -> None:
        """Open the store, as often as the disk refuses that."""
        for _ in range(10):
            self._store = self._new_store()
            try:
                return await self._store.start()
            except (StoreError, OSError) as error:
                self.refused.append(str(error))
        raise AssertionError(self.refused)

    async def go_on(self) -> None:
        """Check that the store accepts messages without a restart once the disk works, and all are on disk."""
        self.file_system.fault = _no_fault
        self._store.flusher.flush()
        self._offsets.flush()
        await self._put_and_wait()
        assert not self.refused_last, self.refused[-1]

    async def stop(self) -> None:
        """Stop the store."""
        await self._store.stop()
        self.file_system.mark(OnDisk())

    def _weighted(self) -> list[tuple[Operation, int]]:
        return [
            (self._put_and_wait, 40),
            (self._put, 25),
            (self._put_batch, 10),
            (self._put_run, 5),
            (self._put_run_and_wait, 10),
            (self._put_batches, 5),
            (self._flush_queues, 8),
            (self._commit, 8),
            (self._flush_index, 4),
            (self._restart, 2),
            (self._delete, 2),
        ]

    def _queue(self) -> Queue:
        return self._chance.choice([*QUEUES, DELETED])

    def _marked(self, queue: Queue, result: PutMessageResult, bodies: list[bytes], *keys: str) -> None:
        self.refused_last = result.status is not PutMessageStatus.PUT_OK
        if self.refused_last:
            assert result.reason
            self.refused.append(result.reason)
            return
        for number, body in enumerate(bodies):
            self.file_system.mark(Put(queue, result.queue_offset + number, body, keys))

    async def _put(self) -> PutMessageResult:
        number = next(self._numbers)
        self._clock.advance(self._chance.choice([0, 0.001, 4]))
        body = self._body(number)
        queue, keys = self._queue(), (f"U{number}", f"k{number}")
        properties = {"UNIQ_KEY": keys[0], "KEYS": keys[1]}
        self.file_system.mark(Trying(queue, [body]))
        result = self._store.appender.put_message(message(body, *queue, properties=properties))
        self._marked(queue, result, [body], *keys)
        with contextlib.suppress(StoreError):  # the queue has no room; the message is kept until it has
            self._store.appender.dispatch()
        return result

    async def _put_and_wait(self) -> None:
        result = await self._put()
        if not self.refused_last:
            await self._wait(result)

    async def _wait(self, result: PutMessageResult) -> None:
        """Wait for the acknowledgement of a put."""
        reason = await flushed(self._store, result)
        if reason:
            self.refused.append(reason)
        else:
            self.file_system.mark(OnDisk())

    async def _put_batch(self) -> None:
        number = next(self._numbers)
        bodies = [b"%d.%d" % (number, each) for each in range(self._chance.randint(1, 5))]
        queue = self._queue()
        self.file_system.mark(Trying(queue, bodies))
        if queue == BATCHES:
            one = inner_batch(*bodies, topic=queue[0], queue_id=queue[1], key=f"U{number}")
            result = self._store.appender.put_inner_batch(one, len(bodies))
            with contextlib.suppress(StoreError):
                self._store.appender.dispatch()
        else:
            result = self._store.appender.put_messages(message(b"", *queue), batch(*bodies))
        self._marked(queue, result, bodies)

    async def _put_run(self) -> PutMessageResult:
        """Put messages that came together; another way if the store wants each by itself."""
        number = next(self._numbers)
        bodies = [b"%d:%d" % (number, each) for each in range(self._chance.randint(1, 8))]
        queue = self._chance.choice([each for each in [*QUEUES, DELETED] if each != BATCHES])
        self.file_system.mark(Trying(queue, bodies))
        result = self._store.appender.put_run(message_run(*bodies, topic=queue[0], queue_ids=[queue[1]] * len(bodies)))
        if result is None:
            return await self._put()
        self.refused_last = False
        for queue_offset, body in zip(result.queue_offsets, bodies, strict=True):
            self.file_system.mark(Put(queue, queue_offset, body, (f"U{body.decode()}",)))
        with contextlib.suppress(StoreError):
            self._store.appender.dispatch()
        return result

    async def _put_run_and_wait(self) -> None:
        result = await self._put_run()
        if not self.refused_last:
            await self._wait(result)

    async def _put_batches(self) -> None:
        """Put batches that came together; another way if the store wants each by itself."""
        number = next(self._numbers)
        queue = self._chance.choice([each for each in [*QUEUES, DELETED] if each != BATCHES])
        batches = [
            [b"%07d-%d%d" % (number, one, each) for each in range(self._chance.randint(1, 4))]
            for one in range(self._chance.randint(1, 3))
        ]
        bodies = list(chain.from_iterable(batches))
        self.file_system.mark(Trying(queue, bodies))
        run = batch_run(*batches, topic=queue[0], queue_ids=[queue[1]] * len(batches))
        result = self._store.appender.put_batches(run)
        if result is None:
            await self._put()
            return
        self.refused_last = False
        for number, body in enumerate(bodies, result.queue_offsets[0]):
            self.file_system.mark(Put(queue, number, body, (f"U{body.decode()}",)))

    async def _commit(self) -> None:
        """Commit the end of a queue as consumer offset and write it."""
        queue = self._chance.choice(QUEUES)
        end = self._store.queues.max_offset_in_queue(*queue)
        self._offsets.commit(GROUP, *queue, end)
        try:
            self._offsets.flush()
        except OSError as error:
            self.refused.append(str(error))
        else:
            self.file_system.mark(Committed(queue, end))

    async def _restart(self) -> None:
        await self._store.stop()
        if not self._store.flusher.error:
            self.file_system.mark(OnDisk())
        await self._start()

    async def _delete(self) -> None:
        # From the call on the topic may be gone.
        self.file_system.mark(Deleted(DELETED[0]))
        with contextlib.suppress(StoreError, OSError):
            await self._store.deletion.delete_topics({DELETED[0]})
        self._store.queue_flusher.flush()

    async def start_on(self, root: Path) -> tuple[list[Event], int]:
        """Open what a crash left; return what was there and was written until then, and how many entries the first are.

        This start has no clients, so it adds no promises.
        """
        file_system = RecordingFileSystem(root)
        there = len(file_system.journal)
        store, _ = await self._opened(root, file_system)
        journal = list(file_system.journal)
        await store.stop()
        return journal, there

    async def _opened(self, root: Path, file_system: FileSystem) -> tuple[MessageStore, ConsumerOffsetManager]:
        config = store_config(root / "store", **self._settings)
        clock = FakeClock(self._clock.time_ms() + 60_000)
        offsets = consumer_offsets(config, clock, file_system)
        offsets.load()
        store = MessageStore(config, V4_HOST, NoListener(), clock, file_system, _TOPICS)
        await store.start()
        await OffsetRecovery(offsets, store.queues, nothing_to_wait_for).start()
        return store, offsets

    async def check(self, root: Path, promised: Promised, loss: Loss, number: int = 0) -> None:
        """Open what a crash left and compare it with the promises."""
        store, offsets = await self._opened(root, LOCAL)
        try:
            for queue in [*QUEUES, DELETED]:
                await _check_queue(store, queue, promised, loss)
                _check_offset(offsets, store, queue, promised, loss)
            _check_new_messages(store, offsets)
        finally:
            await store.stop()


async def _check_queue(store: MessageStore, queue: Queue, promised: Promised, loss: Loss) -> None:
    end = store.queues.max_offset_in_queue(*queue)
    found = unwrap_inner_batches(read_queue(store, *queue))
    assert [one.queue_offset for one in found] == list(range(end)), f"{queue}: not in order, or with gaps"
    for one in found:
        assert promised.may_be(queue, one.queue_offset, one.body), f"{queue} {one.queue_offset}: another body"
    puts = promised.puts[queue]
    least = len(puts) if loss is Loss.NOTHING else promised.on_disk[queue]
    assert end >= least, f"{queue}: {least} messages were promised, {end} are there"
    for put in puts[:end][-3:]:
        for key in put.keys if store.config.message_index_enable else ():
            records = (await store.queries.query_message(queue[0], key, 64, 0, ALWAYS)).records
            assert put.body in [decode_record(record).body for record in records], f"{key} does not find its message"


def _check_offset(
    offsets: ConsumerOffsetManager, store: MessageStore, queue: Queue, promised: Promised, loss: Loss
) -> None:
    end, offset = store.queues.max_offset_in_queue(*queue), offsets.query(GROUP, *queue)
    assert offset <= end, f"{queue}: the group stands at {offset}, behind the end {end}: new messages would be skipped"
    if queue in promised.committed:
        # One that was written after the mark may be there already.
        assert offset >= min(promised.committed[queue], end), f"{queue}: the group was at {promised.committed[queue]}"


def _check_new_messages(store: MessageStore, offsets: ConsumerOffsetManager) -> None:
    for queue in [*QUEUES, DELETED]:
        end = store.queues.max_offset_in_queue(*queue)
        result = store.appender.put_message(message(b"new", *queue))
        store.appender.dispatch()
        assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, end)
        assert result.queue_offset >= offsets.query(GROUP, *queue)
