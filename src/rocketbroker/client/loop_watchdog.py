"""Watch over an event loop that user code may block."""

import asyncio
import logging
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType

from rocketbroker.common.lifecycle import ServiceThread

log = logging.getLogger(__name__)

_STANDARD_LIBRARY = sysconfig.get_path("stdlib")


class LoopWatchdog:
    """Thread that names the call that blocks the event loop, and sends heartbeats until it returns.

    Brokers give up a client without heartbeats for two minutes, and its queues go to other members.

    Args:
        send_heartbeats: sends heartbeats to all brokers; called in the thread while the loop is blocked.
        heartbeat_interval_s: seconds between heartbeats.
        warn_after_s: seconds of a blocked loop after which a warning names the call.
    """

    def __init__(
        self, send_heartbeats: Callable[[], None], heartbeat_interval_s: float, warn_after_s: float = 2.0
    ) -> None:
        self._send_heartbeats = send_heartbeats
        self._heartbeat_interval_s = heartbeat_interval_s
        self._warn_after_s = warn_after_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        # Time at which the loop was asked for a sign of life; None once it gave it.
        self._asked_at: float | None = None
        self._warned = False
        self._sent_at = 0.0
        period_s = min(1.0, warn_after_s / 2, heartbeat_interval_s / 2)
        self._thread = ServiceThread("loop-watchdog", period_s, self._look)

    async def start(self) -> None:
        """Watch the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._thread.start()

    async def stop(self) -> None:
        """End the thread."""
        self._loop = None
        await asyncio.to_thread(self._thread.stop)

    def _look(self) -> None:
        loop, now = self._loop, time.monotonic()
        if loop is None or loop.is_closed():
            return
        if self._asked_at is None:
            self._asked_at = self._sent_at = now
            loop.call_soon_threadsafe(self._answer)
            return
        blocked_s = now - self._asked_at
        if blocked_s >= self._warn_after_s and not self._warned:
            self._warned = True
            self._warn(blocked_s)
        if now >= self._sent_at + self._heartbeat_interval_s:
            self._sent_at = now
            self._send_heartbeats()

    def _answer(self) -> None:
        if self._warned and self._asked_at is not None:
            log.warning("the event loop runs again after %.1f s", time.monotonic() - self._asked_at)
        self._warned = False
        self._asked_at = None

    def _warn(self, blocked_s: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return
        log.warning(
            "the event loop has been blocked for %.1f s by %s; heartbeats continue, and nothing else does. Await an "
            "asynchronous call there, or run it by asyncio.to_thread. Its stack:\n%s",
            blocked_s,
            blocking_call(frame),
            "".join(traceback.format_stack(frame)),
        )


def blocking_call(frame: FrameType) -> str:
    """Return the place and the text of the innermost call outside the standard library."""
    stack = traceback.extract_stack(frame)
    own = [each for each in stack if not _is_standard(each.filename)] or stack
    call = own[-1]
    return f"{call.line or call.name!r} ({call.filename}:{call.lineno}, in {call.name})"


def _is_standard(filename: str) -> bool:
    return filename.startswith((_STANDARD_LIBRARY, "<frozen")) and "site-packages" not in filename
