"""Time limit of handlers (consumeTimeout)."""

import asyncio


class ConsumeTimeout:
    """Cancels tasks whose handler exceeds a limit; one timer watches all of them.

    A context of ``asyncio.timeout`` around each message would cost more than many handlers.

    Args:
        limit_s: seconds that a handler may take.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        # Tasks that run a handler, by begin, so that the earliest deadline comes first.
        self._deadlines: dict[asyncio.Task[object], float] = {}
        self._expired: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, task: asyncio.Task[object]) -> None:
        """Start the time of a task's handler."""
        loop = asyncio.get_running_loop()
        self._deadlines[task] = deadline = loop.time() + self.limit_s
        if self._timer is None:
            self._timer = loop.call_at(deadline, self._expire, loop)

    def end(self, task: asyncio.Task[object]) -> bool:
        """End the time of a task's handler; return true if the task was cancelled, which is taken back."""
        del self._deadlines[task]
        if task not in self._expired:
            return False
        self._expired.remove(task)
        task.uncancel()
        return True

    def stop(self) -> None:
        """Cancel no more tasks."""
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, now = None, loop.time()
        for task, deadline in self._deadlines.items():
            if deadline > now:
                self._timer = loop.call_at(deadline, self._expire, loop)
                return
            if task not in self._expired:
                self._expired.add(task)
                task.cancel()
