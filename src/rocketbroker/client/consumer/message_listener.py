"""Handler of messages, called as a coroutine or in a thread (MessageListener)."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable

from rocketbroker.client.consumer.consume_timeout import ConsumeTimeout
from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from rocketbroker.client.consumer.handler_threads import HandlerThreads
from rocketbroker.client.consumer.received_message import Outcome, ReceivedMessage
from rocketbroker.client.errors import HandlerError
from rocketbroker.common.clock import Clock

log = logging.getLogger(__name__)

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
