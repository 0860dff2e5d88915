"""A crash script that puts the work of the flush threads and the event loop in an order which a slow disk allows."""

import threading
from collections.abc import Callable
from pathlib import Path

from rocketbroker.store.dispatch.commit_log_dispatcher import MessageArrivingListener
from tests.support.crash_script import BATCHES, QUEUES, CrashScript, Queue, Trying
from tests.support.recorded_script import OnDisk, Operation
from tests.support.stores import message

# A checkpoint steps back so far: a shorter sync proves nothing.
_SYNC_S = 4.0


class _Arrivals:
    """A listener that does something once, when the next message is entered into its queue."""

    waiting = False

    def __init__(self) -> None:
        self._then: Callable[[], None] = lambda: None

    def at_the_next(self, then: Callable[[], None]) -> None:
        """Set the action."""
        self._then, self.waiting = then, True

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """See ``MessageArrivingListener``."""
        self.waiting = False
        self._then()


class OrderedThreadsScript(CrashScript):
    """A ``CrashScript`` that also flushes queues while messages are being dispatched."""

    def __init__(self, root: Path, flush_disk_type: str, seed: int, **settings: object) -> None:
        self._arrivals = _Arrivals()
        super().__init__(root, flush_disk_type, seed, **settings)

    def _listener(self) -> MessageArrivingListener:
        return self._arrivals

    def _weighted(self) -> list[tuple[Operation, int]]:
        return [*super()._weighted(), (self.flush_queues_amid_dispatch, 6), (self.set_clock_back, 3)]

    async def run_only(self, operation: Operation) -> None:
        """Start on a store that has all queues and a checkpoint on disk, and do one operation."""
        await self._start()
        for queue in QUEUES:
            self._append(queue)
        await self._restart()
        await operation()
        await self.stop()

    def _append(self, queue: Queue) -> None:
        """Put a message and do not dispatch it."""
        number = next(self._numbers)
        body, keys = self._body(number), (f"U{number}", f"k{number}")
        self.file_system.mark(Trying(queue, [body]))
        one = message(body, *queue, properties={"UNIQ_KEY": keys[0], "KEYS": keys[1]})
        self._marked(queue, self._store.appender.put_message(one), [body], *keys)

    async def flush_queues_amid_dispatch(self) -> None:
        """Let the flush pass over a queue whose message waits, and take seconds for the next one.

        The first queue gets its message while the second one is synced. Meanwhile a message comes into the third, and
        the log is synced beyond all of them.
        """
        store = self._store
        present = self._present()
        if len(present) < 3:
            return
        passed_over, synced, third = present
        store.queue_flusher.flush()
        self._append(synced)
        self._append(passed_over)
        self.file_system.fault = _Sync("commitlog", lambda: self._append_later(third))
        store.flusher.flush()

        amid, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            amid.set()
            go_on.wait()

        def flush() -> None:
            store.queue_flusher.flush()
            amid.set()

        flushing = threading.Thread(target=flush)

        def begin() -> None:
            flushing.start()
            amid.wait()

        self.file_system.fault = _Sync(f"{synced[0]}/{synced[1]}", hold)
        self._arrivals.at_the_next(begin)
        store.appender.dispatch()
        store.flusher.flush()
        self.file_system.mark(OnDisk())
        store.appender.dispatch()
        go_on.set()
        flushing.join()

    async def set_clock_back(self) -> None:
        """Store messages at earlier times than the checkpoint has, the second one in the queue synced first.

        The index is synced while their keys wait.
        """
        present = self._present()
        if present:
            self._clock.advance(-60)
            self._append(present[-1])
            self._append(present[0])
            self._store.flusher.flush()
            self.file_system.mark(OnDisk())
            self._store.appender.dispatch()
            if self._store.index_sync is not None:
                self._store.index_sync.sync()
            self._store.queue_flusher.flush()

    def _present(self) -> list[Queue]:
        """Return the queues that there are, in the order in which they are flushed; those of batches left out."""
        queues = [(each.topic, each.queue_id) for each in self._store.queues]
        return [queue for queue in queues if queue in QUEUES and queue != BATCHES]

    def _append_later(self, queue: Queue) -> None:
        self._clock.advance(_SYNC_S)
        self._append(queue)


class _Sync:
    """Acts once, during the first sync of a file below a folder of that name."""

    def __init__(self, folder: str, then: Callable[[], object]) -> None:
        self._folder = Path(folder).parts
        self._then: Callable[[], object] | None = then

    def __call__(self, operation: str, path: Path) -> None:
        then = self._then
        if operation == "sync" and then is not None and path.parent.parts[-len(self._folder) :] == self._folder:
            self._then = None
            then()
