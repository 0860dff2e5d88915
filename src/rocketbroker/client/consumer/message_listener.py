"""Handler of messages, called as a coroutine or in a thread (MessageListener)."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from rocketbroker.client.consumer.consume_timeout import ConsumeTimeout
from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from rocketbroker.client.consumer.received_message import Outcome, ReceivedMessage
from rocketbroker.client.errors import HandlerError
from rocketbroker.common.clock import Clock

log = logging.getLogger(__name__)

#: Coroutine function, or a plain function, which is called in a thread; the result is ignored.
Handler = Callable[[ReceivedMessage], Awaitable[object] | object]


class MessageListener:
    """Calls a handler and settles each message by its end.

    Args:
        handler: called with one message.
        concurrency: threads for a plain function.
        timeout_s: seconds after which a handler counts as failed (consumeTimeout).
        stats: counts consumed messages.
        clock: source of time.

    Raises:
        HandlerError: the handler cannot be called with one message.
    """

    def __init__(
        self, handler: Handler, concurrency: int, timeout_s: float, stats: ConsumerStats, clock: Clock
    ) -> None:
        check_handler(handler)
        self._handler = handler
        self._timeout = ConsumeTimeout(timeout_s)
        self._stats = stats
        self._clock = clock
        self._threads: ThreadPoolExecutor | None = None
        if not _is_async(handler):
            self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="rocketbroker-handler")

    async def consume(self, message: ReceivedMessage) -> Exception | None:
        """Call the handler, then acknowledge the message or give it back; return the handler's error."""
        start = self._clock.monotonic()
        error = await self._error_of_handler(message)
        if message.outcome is None:
            await (message.ack() if error is None else message.retry_later())
        self._stats.add_consumed(message.topic, start, failed=message.outcome is not Outcome.ACKNOWLEDGED)
        return error

    async def _error_of_handler(self, message: ReceivedMessage) -> Exception | None:
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        self._timeout.begin(task)
        try:
            await self._call(message)
        except asyncio.CancelledError as raised:
            cancelled = raised
        except Exception as error:
            log.warning("the handler failed for %r", message, exc_info=error)
            return error
        else:
            return None
        finally:
            expired = self._timeout.end(task)
        if task.cancelling() > before:
            raise cancelled
        return self._timed_out(message) if expired else self._cancelled(message, cancelled)

    def _timed_out(self, message: ReceivedMessage) -> Exception:
        limit_s = self._timeout.limit_s
        log.warning("the handler did not end within consumeTimeout (%g s) for %r", limit_s, message)
        return TimeoutError(f"the handler did not end within {limit_s:g} s")

    @staticmethod
    def _cancelled(message: ReceivedMessage, cause: asyncio.CancelledError) -> Exception:
        """Return an error for a task that the handler awaited: its CancelledError would end the worker."""
        error = HandlerError("the handler awaited a task that was cancelled; catch CancelledError in it")
        error.__cause__ = cause
        log.warning("the handler failed for %r", message, exc_info=error)
        return error

    async def _call(self, message: ReceivedMessage) -> None:
        if self._threads is None:
            await self._handler(message)  # type: ignore[misc] # it is a coroutine function
            return
        result = await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, message)
        if inspect.isawaitable(result):
            await result

    def stop(self) -> None:
        """Stop starting threads; running ones end with their handler."""
        self._timeout.stop()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


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
