"""Handler of messages, called as a coroutine or in a thread (MessageListener)."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

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
        self._timeout_s = timeout_s
        self._stats = stats
        self._clock = clock
        self._threads: ThreadPoolExecutor | None = None
        if not _is_async(handler):
            self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="rocketbroker-handler")

    async def consume(self, message: ReceivedMessage) -> Exception | None:
        """Call the handler, then acknowledge the message or give it back; return the handler's error."""
        start = self._clock.monotonic()
        error: Exception | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._call_handler(message)
        except TimeoutError as raised:
            error = raised
            log.warning("the handler did not end within consumeTimeout (%g s) for %r", self._timeout_s, message)
        except Exception as raised:
            error = raised
            log.warning("the handler failed for %r", message, exc_info=error)
        if message.outcome is None:
            await (message.ack() if error is None else message.retry_later())
        failed = message.outcome is not Outcome.ACKNOWLEDGED
        self._stats.add_consumed(message.topic, start, failed=failed)
        return error

    async def _call_handler(self, message: ReceivedMessage) -> None:
        try:
            await self._call(message)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Raised as it is, it would end the worker without a trace.
            raise HandlerError("the handler awaited a task that was cancelled; catch CancelledError in it") from error

    async def _call(self, message: ReceivedMessage) -> None:
        if self._threads is None:
            result = self._handler(message)
        else:
            result = await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, message)
        if inspect.isawaitable(result):
            await result

    def stop(self) -> None:
        """Stop starting threads; running ones end with their handler."""
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
