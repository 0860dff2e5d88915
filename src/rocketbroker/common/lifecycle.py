"""Owners of tasks, threads and parts: who started a thing stops it (ServiceThread, BrokerController.shutdown).

``TaskOwner`` holds asyncio tasks, ``ServiceThread`` is one named thread with a work signal, ``PartList`` starts parts
in order and stops them in the reverse order.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

log = logging.getLogger(__name__)

#: Seconds before a loop that failed begins anew.
RESTART_S = 1.0


class TaskOwner:
    """Starts asyncio tasks, keeps them alive, logs those that fail, and cancels all of them at ``stop``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine as a task of this owner."""
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self._name}.{name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def forever(self, loop: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[Any]:
        """Run a coroutine function that loops without end.

        An error that it does not expect is logged with its trace, and the loop begins anew after ``RESTART_S``.
        """
        return self.start(self._keep_running(loop, name), name)

    async def _keep_running(self, loop: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        while True:
            try:
                return await loop()
            except Exception:
                log.exception("%s.%s failed; it begins anew in %s s", self._name, name, RESTART_S)
            await asyncio.sleep(RESTART_S)

    def every(self, period_s: float, action: Callable[[], Awaitable[None] | None], name: str) -> asyncio.Task[Any]:
        """Call ``action`` each ``period_s`` seconds; a failing call is logged and the next one still comes."""
        return self.start(self._repeat(period_s, action, name), name)

    async def _repeat(self, period_s: float, action: Callable[[], Awaitable[None] | None], name: str) -> None:
        while True:
            await asyncio.sleep(period_s)
            try:
                result = action()
                if result is not None:
                    await result
            except Exception:
                log.exception("%s.%s failed; next try in %s s", self._name, name, period_s)

    def whenever(self, action: Callable[[], Awaitable[float]], retry_s: float, name: str) -> asyncio.Task[Any]:
        """Call ``action`` again after as many seconds as it says; a failing call is logged and tried again."""
        return self.start(self._repeat_when_told(action, retry_s, name), name)

    async def _repeat_when_told(self, action: Callable[[], Awaitable[float]], retry_s: float, name: str) -> None:
        while True:
            try:
                pause_s = await action()
            except Exception:
                log.exception("%s.%s failed; next try in %s s", self._name, name, retry_s)
                pause_s = retry_s
            await asyncio.sleep(pause_s)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s ended by an error", task.get_name(), exc_info=error)

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ServiceThread:
    """One named thread that calls ``action`` when woken and at least each ``interval_s`` seconds.

    ``stop`` wakes it, lets it call ``action`` a last time, and joins it. Errors of ``action`` are logged; it goes on.
    """

    def __init__(self, name: str, interval_s: float, action: Callable[[], None]) -> None:
        self._action = action
        self._interval_s = interval_s
        self._work = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wakeup(self) -> None:
        """Have ``action`` called soon."""
        self._work.set()

    def stop(self) -> None:
        """Call ``action`` a last time and join the thread (blocks: not for the event loop)."""
        self._stopped = True
        self._work.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        last = False
        while not last:
            self._work.wait(self._interval_s)
            self._work.clear()
            # Read before the action: one that runs when `stop` is called may have missed what came last.
            last = self._stopped
            try:
                self._action()
            except Exception:
                log.exception("%s failed; it goes on", self._thread.name)


class Part(Protocol):
    """Something with a life: started once, stopped once."""

    async def start(self) -> None:
        """Start; raise when it cannot."""

    async def stop(self) -> None:
        """Stop and release all it holds."""


class PartList:
    """Starts parts in order; stops those that were started in the reverse order, also after a failed start."""

    def __init__(self, *parts: Part) -> None:
        self._parts = list(parts)
        self._started: list[Part] = []

    async def start(self) -> None:
        """Start all; when one fails, stop the started ones and raise its error."""
        try:
            for part in self._parts:
                await part.start()
                self._started.append(part)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop in reverse order; an error of one part is logged and does not keep the others from stopping."""
        while self._started:
            part = self._started.pop()
            try:
                await part.stop()
            except Exception:
                log.exception("%s did not stop cleanly", type(part).__name__)
