"""Watch over an event loop that user code may block."""

import asyncio
import logging
import math
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

log = logging.getLogger(__name__)

_STANDARD_LIBRARY = sysconfig.get_path("stdlib")


class LoopWatchdog:
    """Watch over the event loop of one client: a warning names the call that blocks it, and heartbeats continue.

    Brokers give up a client without heartbeats for two minutes, and its queues go to other members. All clients on a
    loop share one thread.

    Args:
        send_heartbeats: sends heartbeats to all brokers and returns their number; called in the thread while the loop
            is blocked.
        heartbeat_interval_s: seconds between heartbeats.
        warn_after_s: seconds of a blocked loop after which a warning names the call.
    """

    def __init__(
        self, send_heartbeats: Callable[[], int], heartbeat_interval_s: float, warn_after_s: float = 2.0
    ) -> None:
        self._send_heartbeats = send_heartbeats
        self._heartbeat_interval_s = heartbeat_interval_s
        self.warn_after_s = warn_after_s
        self.period_s = min(1.0, warn_after_s / 2, heartbeat_interval_s / 2)
        self._sent_at = 0.0
        self._thread: _WatchThread | None = None

    async def start(self) -> None:
        """Watch the running loop."""
        loop = asyncio.get_running_loop()
        thread = _threads.get(loop)
        if thread is None or not thread.is_alive:  # it is not in a forked process
            thread = _threads[loop] = _WatchThread(loop)
        thread.add(self)
        self._thread = thread

    async def stop(self) -> None:
        """Watch no longer; the last client on the loop ends the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.remove(self)

    def send_if_due(self, asked_at: float, now: float) -> int:
        """Send heartbeats if the loop, blocked since ``asked_at``, should have sent some; return their number."""
        if now < max(asked_at, self._sent_at) + self._heartbeat_interval_s:
            return 0
        self._sent_at = now
        return self._send_heartbeats()


class _WatchThread:
    """Thread that looks whether one event loop answers.

    Args:
        loop: the running loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._watchdogs: tuple[LoopWatchdog, ...] = ()
        # Time at which the loop was asked for a sign of life; None once it gave it.
        self._asked_at: float | None = None
        self._warned = False
        self._sent = 0
        self._stopping = threading.Event()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="loop-watchdog", daemon=True)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def add(self, watchdog: LoopWatchdog) -> None:
        """Watch for a client; the first one starts the thread."""
        self._watchdogs = (*self._watchdogs, watchdog)
        if len(self._watchdogs) == 1:
            self._thread.start()

    async def remove(self, watchdog: LoopWatchdog) -> None:
        """Forget a client; end the thread after the last one."""
        self._watchdogs = tuple(each for each in self._watchdogs if each is not watchdog)
        if self._watchdogs:
            return
        if _threads.get(self._loop) is self:
            del _threads[self._loop]
        self._stopping.set()
        # Not by a thread that joins this one: executors are gone when the interpreter ends. A forked process has no
        # thread, and one whose loop was closed ends by itself.
        if self.is_alive and self._loop is asyncio.get_running_loop():
            await self._stopped.wait()
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(min((each.period_s for each in self._watchdogs), default=0.0)):
            if self._loop.is_closed():
                _threads.pop(self._loop, None)
                return
            try:
                self._look()
            except Exception:
                log.exception("the watchdog of the event loop failed; it continues")
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._stopped.set)

    def _look(self) -> None:
        now, asked_at = time.monotonic(), self._asked_at
        if not self._loop.is_running():
            self._asked_at, self._warned = None, False
            return
        if asked_at is None:
            self._asked_at, self._sent = now, 0
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._answer)
            return
        watchdogs = self._watchdogs
        if not self._warned and now - asked_at >= min((each.warn_after_s for each in watchdogs), default=math.inf):
            self._warned = True
            self._warn(now - asked_at)
        for each in watchdogs:
            self._sent += each.send_if_due(asked_at, now)

    def _answer(self) -> None:
        if self._warned and self._asked_at is not None:
            blocked_s = time.monotonic() - self._asked_at
            log.warning("the event loop runs again after %.1f s; heartbeats sent meanwhile: %d", blocked_s, self._sent)
        self._warned = False
        self._asked_at = None
        self._loop_thread = threading.get_ident()

    def _warn(self, blocked_s: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return
        log.warning(
            "the event loop has been blocked for %.1f s by %s. Nothing else runs on it; heartbeats are sent. Await an "
            "asynchronous call there, or run it by asyncio.to_thread. Its stack:\n%s",
            blocked_s,
            blocking_call(frame),
            "".join(traceback.format_stack(frame)),
        )


_threads: dict[asyncio.AbstractEventLoop, _WatchThread] = {}


def blocking_call(frame: FrameType) -> str:
    """Return the place and the text of the innermost call outside the standard library."""
    stack = traceback.extract_stack(frame)
    own = [each for each in stack if not _is_standard(each.filename)] or stack
    call = own[-1]
    return f"{call.line or call.name!r} ({call.filename}:{call.lineno}, in {call.name})"


def _is_standard(filename: str) -> bool:
    return filename.startswith((_STANDARD_LIBRARY, "<frozen")) and "site-packages" not in filename
