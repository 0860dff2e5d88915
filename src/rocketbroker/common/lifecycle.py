"""Owners of tasks, threads and parts: the owner stops what it started (ServiceThread, BrokerController.shutdown).

``TaskOwner`` holds asyncio tasks, ``ServiceThread`` is one named thread with a work signal, ``PartList`` starts parts
in order and stops them in the reverse order. ``stop_all`` and ``uninterrupted`` let a stop reach its end.
"""

import asyncio
import atexit
import logging
import os
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds before a failed loop restarts.
RESTART_S = 1.0
#: Seconds between two looks of a part that looks for work.
TICK_S = 0.5
# Longest delay of what is due in a tick or later. Not 0: a timer may fire a moment before its tick, which then is over.
LATE_S = 0.05
#: Longest sleep of an idle thread in seconds, should nobody wake it.
IDLE_S = 10.0


def until_tick(pause_s: float, late_s: float = TICK_S / 2) -> float:
    """Return the seconds until the last tick that is at most ``late_s`` later than ``pause_s`` from now.

    A pause below a tick is kept. Timers of one moment wake the process once, so an idle server wakes once a tick,
    however many parts look for work.
    """
    if pause_s < TICK_S:
        return pause_s
    now = asyncio.get_running_loop().time()
    return max((now + pause_s + late_s) // TICK_S * TICK_S - now, 0.0)


class TaskOwner:
    """Start asyncio tasks, keep references, log failures, and cancel all tasks at ``stop``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        """Return the number of tasks that have not ended."""
        return len(self._tasks)

    def __bool__(self) -> bool:
        """Return true: an owner without tasks is an owner."""
        return True

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine as a task of this owner."""
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self._name}.{name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def forever(self, loop: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[Any]:
        """Run a coroutine function that loops forever.

        Log an unexpected error with its traceback and restart the loop after ``RESTART_S``.
        """
        return self.start(self._keep_running(loop, name), name)

    async def _keep_running(self, loop: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        while True:
            try:
                return await loop()
            except Exception:
                log.exception("%s.%s failed; it restarts in %s s", self._name, name, RESTART_S)
            await asyncio.sleep(RESTART_S)

    def every(self, period_s: float, action: Callable[[], Awaitable[None] | None], name: str) -> asyncio.Task[Any]:
        """Call ``action`` about every ``period_s`` seconds, at a tick if that is no less; log errors and continue."""
        return self.start(self._repeat(period_s, action, name), name)

    async def _repeat(self, period_s: float, action: Callable[[], Awaitable[None] | None], name: str) -> None:
        while True:
            await asyncio.sleep(until_tick(period_s))
            try:
                result = action()
                if result is not None:
                    await result
            except Exception:
                log.exception("%s.%s failed; next try in %s s", self._name, name, period_s)

    def whenever(self, action: Callable[[], Awaitable[float]], retry_s: float, name: str) -> asyncio.Task[Any]:
        """Call ``action`` repeatedly, after the seconds that it returns or at a tick before; log errors and retry."""
        return self.start(self._repeat_when_told(action, retry_s, name), name)

    async def _repeat_when_told(self, action: Callable[[], Awaitable[float]], retry_s: float, name: str) -> None:
        while True:
            try:
                pause_s = await action()
            except Exception:
                log.exception("%s.%s failed; next try in %s s", self._name, name, retry_s)
                pause_s = retry_s
            # What the action looks for, such as a message that is due, may come right after the pause.
            await asyncio.sleep(until_tick(pause_s, LATE_S))

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s ended by an error", task.get_name(), exc_info=error)

    async def stop(self) -> None:
        """Cancel all tasks and wait for their end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def stop_all(*steps: Callable[[], Awaitable[None] | None] | None) -> None:
    """Take the steps of a stop in order, each whatever became of those before it; then raise the first error.

    The end of an event loop cancels every task, once, wherever it waits. A stop that is under way then loses the step
    that it is in, and must still take the others: they free what the first one used.
    """
    first: BaseException | None = None
    for step in filter(None, steps):
        try:
            waits = step()
            if waits is not None:
                await waits
        except BaseException as error:
            if first is None:
                first = error
            else:
                log.exception("a stop goes on after another error")
    if first is not None:
        raise first


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; a cancellation of the caller takes effect after that.

    For servers: half a stop leaves ports bound, tables unwritten and a store that looks as after a crash.
    """
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as raised:
            cancelled = raised
    if cancelled is not None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed after its caller was cancelled", task.get_name(), exc_info=error)
        raise cancelled
    return task.result()


class ServiceThread:
    """Named thread that calls ``action`` when woken, and at least every ``interval_s`` seconds.

    An action that returns true found nothing to do. The thread is idle then: it next acts when woken, or after
    ``IDLE_S``. ``stop`` wakes it, lets it call ``action`` a last time, and joins it. Errors of ``action`` are logged.

    Attributes:
        is_idle: the last action found nothing to do.
        is_stopping: ``stop`` was called.
    """

    def __init__(self, name: str, interval_s: float, action: Callable[[], bool | None]) -> None:
        self._action = action
        self._interval_s = interval_s
        self.is_idle = False
        self._work = threading.Event()
        self.is_stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wakeup(self) -> None:
        """Wake the thread to call ``action`` soon."""
        self._work.set()

    def wake_idle(self) -> None:
        """Wake the thread if it is idle; otherwise it acts within its interval by itself."""
        if self.is_idle:
            self._work.set()

    def stop(self) -> None:
        """Call ``action`` a last time and join the thread (blocks; not for the event loop)."""
        self.is_stopping = True
        self._work.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        last = False
        while not last:
            self._work.wait(max(self._interval_s, IDLE_S) if self.is_idle else self._interval_s)
            self._work.clear()
            # Before the action: who finds work for an idle thread later must wake it.
            self.is_idle = False
            # Read before the action: a call that is running when `stop` is called may have missed the last work.
            last = self.is_stopping
            try:
                self.is_idle = bool(self._action())
            except Exception:
                log.exception("%s failed; it continues", self._thread.name)


class Part(Protocol):
    """Component that is started and stopped."""

    async def start(self) -> None:
        """Start, or raise."""

    async def stop(self) -> None:
        """Stop and release all resources."""


class PartList:
    """Start parts in order, and stop the started ones in reverse order, also after a failed start."""

    def __init__(self, *parts: Part) -> None:
        self._parts = list(parts)
        self._started: list[Part] = []
        self._stopping = asyncio.Lock()

    async def start(self) -> None:
        """Start all parts; if one fails, stop the started ones and raise its error."""
        try:
            for part in self._parts:
                await part.start()
                self._started.append(part)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop in reverse order; log the error of a part and stop the others, also if the caller is cancelled."""
        await uninterrupted(self._stop_started())

    async def _stop_started(self) -> None:
        async with self._stopping:  # a second caller waits for the first one's parts
            await stop_all(*(self._stop_last for _ in self._started))

    async def _stop_last(self) -> None:
        part = self._started.pop()
        try:
            await part.stop()
        except Exception:
            log.exception("%s did not stop cleanly", type(part).__name__)


class MustClose:
    """Owner of connections, tasks or threads that its user closes; a ResourceWarning names one that is forgotten.

    It comes when the object is dropped, and at the latest when the interpreter ends: a thread may hold it until then.
    """

    # The process that has opened it, 0 while it is closed. A forked process has neither threads nor connections of it.
    _opened_in = 0

    def mark_open(self) -> None:
        """Warn from now on if this is dropped."""
        self._opened_in = os.getpid()
        _open.add(self)

    def mark_closed(self) -> None:
        """Warn no longer."""
        self._opened_in = 0

    def warn_if_open(self) -> None:
        """Warn, once, unless this was closed."""
        if self._opened_in == os.getpid():
            self._opened_in = 0
            text = f"{type(self).__name__} was not closed; use it within 'with' or 'async with', or call close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    def __del__(self) -> None:
        self.warn_if_open()


_open: WeakSet[MustClose] = WeakSet()


@atexit.register
def _warn_of_open() -> None:
    for each in list(_open):
        each.warn_if_open()
