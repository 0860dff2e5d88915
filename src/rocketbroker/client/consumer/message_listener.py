"""Handler of messages, called as a coroutine or in a thread, and its time limit (MessageListener, consumeTimeout)."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor

from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from rocketbroker.client.core.errors import HandlerError
from rocketbroker.client.core.received_message import Outcome, ReceivedMessage
from rocketbroker.common.clock import Clock

log = logging.getLogger(__name__)


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

    Attributes:
        overdue: messages that were given up while their handler runs on, each with the end of its handler.
    """

    def __init__(self, number: int, hold_pulls: Callable[[bool], None]) -> None:
        self._number = number
        self._hold_pulls = hold_pulls
        self._pool = ThreadPoolExecutor(number, thread_name_prefix="rocketbroker-handler")
        self._running = 0
        self._freed = asyncio.Event()
        self.overdue: dict[ReceivedMessage, asyncio.Event] = {}
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
        ended = self.overdue.get(message)
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
        self.overdue[message] = asyncio.Event()

        def ended(_work: Future[object]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._take_back, message)

        work.add_done_callback(ended)
        if self._reminder is None:
            self._reminder = loop.call_later(_REMIND_S, self._remind)
        if len(self.overdue) == self._number:
            self._hold_pulls(True)
            self._warn()

    def _take_back(self, message: ReceivedMessage) -> None:
        if len(self.overdue) == self._number:
            self._hold_pulls(False)
            log.info("a thread is free again: messages are pulled")
        self.overdue.pop(message).set()
        self._free()

    def _remind(self) -> None:
        self._reminder = None
        if self.overdue:
            self._warn()
            self._reminder = asyncio.get_running_loop().call_later(_REMIND_S, self._remind)

    def _warn(self) -> None:
        log.warning(
            "%d of %d threads still run handlers that exceeded consumeTimeout, the first for %r%s; give the handler's "
            "own waits a limit",
            len(self.overdue),
            self._number,
            next(iter(self.overdue)),
            ": nothing is pulled until one of them ends" if len(self.overdue) == self._number else "",
        )


#: None and True acknowledge, False asks for a retry, an Outcome says so itself.
HandlerResult = Outcome | bool | None

#: Coroutine function, or a plain function, which is called in a thread.
Handler = Callable[[ReceivedMessage], Awaitable[HandlerResult] | HandlerResult]


class MessageListener:
    """Calls a handler and settles each message by its end.

    Args:
        handler: called with one message.
        concurrency: threads for a plain function.
        timeout_s: seconds after which a handler counts as failed (consumeTimeout).
        stats: counts consumed messages.
        clock: source of time.
        orderly: a message whose time is over counts as failed only once its handler has returned.
        hold_pulls: called with True when no thread is left for a plain function, with False when one is free again.

    Raises:
        HandlerError: the handler cannot be called with one message.
    """

    def __init__(
        self,
        handler: Handler,
        concurrency: int,
        timeout_s: float,
        stats: ConsumerStats,
        clock: Clock,
        *,
        orderly: bool = False,
        hold_pulls: Callable[[bool], None] = lambda _hold: None,
    ) -> None:
        check_handler(handler)
        self._handler = handler
        self._timeout = ConsumeTimeout(timeout_s)
        self._stats = stats
        self._clock = clock
        self._orderly = orderly
        self._threads = None if _is_async(handler) else HandlerThreads(concurrency, hold_pulls)

    @property
    def threads(self) -> HandlerThreads | None:
        """Threads of a plain function, one of which must be free before a message is taken."""
        return self._threads

    async def consume(self, message: ReceivedMessage) -> Exception | None:
        """Call the handler, then acknowledge the message or give it back; return the handler's error."""
        if self._threads is not None:
            await self._threads.wait_free()
        start = self._clock.monotonic()
        result = await self._run_handler(message)
        error = result if isinstance(result, Exception) else None
        if self._orderly and self._threads is not None:
            await self._threads.wait_ended(message)  # else the message would be handled twice at the same time
        if message.outcome is None:
            if result is Outcome.ACKNOWLEDGED:
                await message.ack()
            elif result is Outcome.DEAD:
                await message.dead_letter()
            else:
                await message.retry_later()
        self._stats.add_consumed(message.topic, start, failed=message.outcome is not Outcome.ACKNOWLEDGED)
        return error

    async def _run_handler(self, message: ReceivedMessage) -> Outcome | Exception:
        """Return the outcome that follows from the handler's result, or its error."""
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        self._timeout.begin(task)
        try:
            return _outcome_of(await self._call(message))
        except asyncio.CancelledError as raised:
            cancelled = raised
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except HandlerError as error:
            log.error("the handler failed for %r: %s", message, error)  # noqa: TRY400 - no line of it raised
            return error
        except BaseException as error:  # as pytest.fail() raises; it would end the worker
            log.warning("the handler failed for %r", message, exc_info=error)
            return error if isinstance(error, Exception) else HandlerError(f"the handler raised {error!r}")
        finally:
            expired = self._timeout.end(task)
        if task.cancelling() > before:
            raise cancelled
        if expired:
            limit_s = self._timeout.limit_s
            log.warning("the handler did not end within consumeTimeout (%g s) for %r", limit_s, message)
            return TimeoutError(f"the handler did not end within {limit_s:g} s")
        # It comes from a task that the handler awaited, and would end the worker.
        failure = HandlerError("the handler awaited a task that was cancelled; catch CancelledError in it")
        failure.__cause__ = cancelled
        log.warning("the handler failed for %r", message, exc_info=failure)
        return failure

    async def _call(self, message: ReceivedMessage) -> object:
        if self._threads is None:
            return await self._handler(message)  # type: ignore[misc] # it is a coroutine function
        return await self._threads.call(self._handler, message)

    def stop(self) -> None:
        """Stop starting threads; running ones end with their handler."""
        self._timeout.stop()
        if self._threads is not None:
            self._threads.stop()


def _outcome_of(result: object) -> Outcome:
    """Return the outcome that a result of a handler stands for.

    A value without a meaning is an error rather than an acknowledgement, which would lose the message of a handler that
    reports its failures by what it returns.

    Raises:
        HandlerError: the result has no meaning.
    """
    if result is None or result is True:
        return Outcome.ACKNOWLEDGED
    if result is False:
        return Outcome.RETRIED
    if isinstance(result, Outcome):
        return result
    raise HandlerError(f"it returned {result!r}; return None or True to acknowledge, False for a retry, or an Outcome")


def check_handler(handler: object) -> None:
    """Raise HandlerError unless an object can be called with one message."""
    if not callable(handler):
        raise HandlerError(f"the handler is {handler!r}; give a function of one message: def handle(message): ...")
    try:
        inspect.signature(handler).bind(object())
    except TypeError as error:
        shown = f"{getattr(handler, '__name__', handler)}{inspect.signature(handler)}"
        raise HandlerError(f"the handler {shown} cannot be called with one message: {error}") from None
    except ValueError:
        return  # a builtin without a signature


def _is_async(handler: Handler) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004 - an object whose call is a coroutine function
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
