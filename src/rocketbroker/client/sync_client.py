"""Use of the asynchronous clients from synchronous code."""

import asyncio
import concurrent.futures.thread
import logging
import os
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketbroker.client.consumer.push_consumer import PushConsumer
from rocketbroker.client.core.errors import ClientStateError
from rocketbroker.client.core.received_message import ReceivedMessage

log = logging.getLogger(__name__)

T = TypeVar("T")

# Clients with a thread, which the end of the interpreter closes.
_running: set["SyncClient"] = set()


class SyncClient:
    """One thread with an event loop, on which scripts and synchronous frameworks run producers, consumers and admins.

    ``with SyncClient() as sync: producer = sync.open(Producer("group", address))``, then
    ``sync.call(producer.send(message))``. All methods of the clients are called like this, from any thread. The thread
    starts on first use; what was opened is closed by ``close``, by leaving ``with``, or when the interpreter exits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended = asyncio.Event()
        self._process = os.getpid()
        self._opened = AsyncExitStack()
        self._closed = False

    def open(self, client: AbstractAsyncContextManager[T]) -> T:
        """Start a producer, consumer or admin client, and close it with this object.

        Raises:
            ClientError: it cannot be started.
        """
        return self.call(self._opened.enter_async_context(client))

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, such as ``producer.send(message)``, and return its result or raise its error.

        Raises:
            ClientStateError: this object is closed, belongs to another process, or is used inside an event loop; or it
                was closed during the call.
        """
        try:
            future = self._start(work)
        except ClientStateError:
            work.close()
            raise
        try:
            return _result(future)
        except concurrent.futures.CancelledError as error:
            if not self._closed:
                raise
            raise ClientStateError("this SyncClient was closed during the call") from error

    def messages(self, consumer: PushConsumer) -> Iterator[ReceivedMessage]:
        """Yield the messages of an opened push consumer until it or this object is closed.

        Asking for the next message acknowledges the one before; an exception that leaves ``with`` gives it back.
        """
        iterator = aiter(consumer)

        async def take() -> ReceivedMessage | None:
            return await anext(iterator, None)

        while True:
            try:
                message = self.call(take())
            except ClientStateError:
                if self._closed:
                    return
                raise
            if message is None:
                return
            yield message

    def close(self) -> None:
        """Close what was opened, the last first, cancel other calls, and end the thread.

        Raises:
            ClientStateError: this thread runs the calls, and would wait for itself.
        """
        self._close(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error)

    def _close(self, error: BaseException | None) -> None:
        if threading.current_thread() is self._thread:
            raise ClientStateError("close() would wait for the call that it is in; close the SyncClient outside of it")
        if self._process != os.getpid():
            return
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
            self._closed = True
        _running.discard(self)
        if loop is None or thread is None:
            return
        try:
            _result(asyncio.run_coroutine_threadsafe(self._close_opened(error), loop))
        finally:
            loop.call_soon_threadsafe(self._ended.set)
            thread.join()

    async def _close_opened(self, error: BaseException | None) -> None:
        """Close what was opened, while the error that ended the program's block is handled."""
        if error is None:
            await self._opened.aclose()
            return
        trace = error.__traceback__
        try:
            raise error  # noqa: TRY301 - it has to be the exception that is being handled
        except BaseException:  # noqa: BLE001 - the caller's block raises it again
            await self._opened.__aexit__(type(error), error, trace)
        finally:
            error.__traceback__ = trace  # without the frame of this method

    def _start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Pass a coroutine to the loop, which starts on first use."""
        if self._process != os.getpid():
            raise ClientStateError(
                "this SyncClient belongs to the process that this one was forked from; make one here"
            )
        if asyncio._get_running_loop() is not None:
            raise ClientStateError("SyncClient would block the event loop that runs here; await the call instead")
        with self._lock:  # else a call could reach the loop after `close`, and never end
            if self._closed:
                raise ClientStateError("this SyncClient is closed; make a new one")
            if self._loop is None:
                runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
                self._loop = runner.get_loop()
                self._thread = threading.Thread(target=self._run, args=[runner], name="sync-client", daemon=True)
                self._thread.start()
                _running.add(self)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _run(self, runner: asyncio.Runner) -> None:
        with runner:  # its end cancels the calls that are left
            runner.run(self._ended.wait())


def _result(future: concurrent.futures.Future[T]) -> T:
    """Wait for a result; cancel the work if the wait is interrupted."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _close_running() -> None:
    for client in list(_running):
        try:
            client.close()
        except Exception:
            log.exception("a SyncClient was not closed cleanly when the interpreter ended")


# Not by atexit: that comes after all executors have ended, and then plain handlers fail, and offsets are not written.
# Functions registered here run in reverse order; the one of `concurrent.futures.thread` is first in the list.
threading._register_atexit(_close_running)  # type: ignore[attr-defined]
