"""Threads in which a plain function handles messages."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from rocketbroker.client.consumer.received_message import ReceivedMessage

log = logging.getLogger(__name__)

# Seconds between two lines about handlers that do not end.
_REMIND_S = 60.0


class HandlerThreads:
    """As many threads as handlers may run at the same time.

    A thread cannot be ended from outside: a handler that exceeds consumeTimeout keeps its thread until it returns. A
    message is therefore taken, and its time begins, only while a thread is free. Otherwise messages would wait behind
    such handlers, expire without a call, and end as dead letters. While all threads are overdue, nothing is pulled:
    the consumer would fill up with messages that nobody handles.

    Args:
        number: number of threads.
        hold_pulls: called with True when all threads are overdue, with False when one of them is free again.
    """

    def __init__(self, number: int, hold_pulls: Callable[[bool], None]) -> None:
        self._number = number
        self._hold_pulls = hold_pulls
        self._pool = ThreadPoolExecutor(number, thread_name_prefix="rocketbroker-handler")
        self._running = 0
        self._freed = asyncio.Event()
        # Messages that were given up while their handler runs on, each with the end of its handler.
        self._overdue: dict[ReceivedMessage, asyncio.Event] = {}
        self._reminder: asyncio.TimerHandle | None = None

    async def wait_free(self) -> None:
        """Wait until a thread is free."""
        while self._running >= self._number:
            self._freed.clear()
            await self._freed.wait()

    async def call(self, handler: Callable[[ReceivedMessage], object], message: ReceivedMessage) -> object:
        """Call a handler in a thread and return its result; call ``wait_free`` first."""
        work = self._pool.submit(handler, message)
        self._running += 1
        try:
            result = await asyncio.wrap_future(work)
        finally:
            if work.done():
                self._free()
            else:
                self._leave(message, work)
        return await result if inspect.isawaitable(result) else result

    async def wait_ended(self, message: ReceivedMessage) -> None:
        """Wait until the handler of a message that was given up has returned."""
        ended = self._overdue.get(message)
        if ended is not None:
            await ended.wait()

    def stop(self) -> None:
        """Start no more threads; running ones end with their handler."""
        if self._reminder is not None:
            self._reminder.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _free(self) -> None:
        self._running -= 1
        self._freed.set()

    def _leave(self, message: ReceivedMessage, work: Future[object]) -> None:
        """Note a handler that runs on although its message was given up."""
        loop = asyncio.get_running_loop()
        self._overdue[message] = asyncio.Event()

        def ended(_work: Future[object]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._take_back, message)

        work.add_done_callback(ended)
        if self._reminder is None:
            self._reminder = loop.call_later(_REMIND_S, self._remind)
        if len(self._overdue) == self._number:
            self._hold_pulls(True)
            self._warn()

    def _take_back(self, message: ReceivedMessage) -> None:
        if len(self._overdue) == self._number:
            self._hold_pulls(False)
            log.info("a thread is free again: messages are pulled")
        self._overdue.pop(message).set()
        self._free()

    def _remind(self) -> None:
        self._reminder = None
        if self._overdue:
            self._warn()
            self._reminder = asyncio.get_running_loop().call_later(_REMIND_S, self._remind)

    def _warn(self) -> None:
        log.warning(
            "%d of %d threads still run handlers that exceeded consumeTimeout, the first for %r%s; give the handler's "
            "own waits a limit",
            len(self._overdue),
            self._number,
            next(iter(self._overdue)),
            ": nothing is pulled until one of them ends" if len(self._overdue) == self._number else "",
        )
