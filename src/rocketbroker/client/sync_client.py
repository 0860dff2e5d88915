"""Use of the asynchronous clients from synchronous code."""

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketbroker.client.consumer.received_message import ReceivedMessage
from rocketbroker.client.errors import ClientStateError
from rocketbroker.client.push_consumer import PushConsumer

T = TypeVar("T")


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
            ClientStateError: this object is closed, belongs to another process, or is used inside an event loop.
        """
        try:
            loop = self._running_loop()
        except ClientStateError:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        return _result(future)

    def messages(self, consumer: PushConsumer) -> Iterator[ReceivedMessage]:
        """Yield the messages of an opened push consumer until it is closed.

        Asking for the next message acknowledges the one before; an exception that leaves ``with`` gives it back.
        """
        iterator = aiter(consumer)

        async def take() -> ReceivedMessage | None:
            return await anext(iterator, None)

        while (message := self.call(take())) is not None:
            yield message

    def close(self) -> None:
        """Close what was opened, the last first, and end the thread."""
        self._close(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error)

    def _close(self, error: BaseException | None) -> None:
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
            self._closed = True
        if loop is None or thread is None or self._process != os.getpid():
            return
        atexit.unregister(self.close)
        try:
            _result(asyncio.run_coroutine_threadsafe(self._close_opened(error), loop))
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    async def _close_opened(self, error: BaseException | None) -> None:
        """Close what was opened, while the error that ended the program's block is handled."""
        if error is None:
            await self._opened.aclose()
            return
        try:
            raise error  # noqa: TRY301 - it has to be the exception that is being handled
        except BaseException:  # noqa: BLE001 - the caller's block raises it again
            await self._opened.__aexit__(type(error), error, error.__traceback__)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._process != os.getpid():
            raise ClientStateError(
                "this SyncClient belongs to the process that this one was forked from; make one here"
            )
        if asyncio._get_running_loop() is not None:
            raise ClientStateError("SyncClient would block the event loop that runs here; await the call instead")
        with self._lock:
            if self._closed:
                raise ClientStateError("this SyncClient is closed; make a new one")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=[self._loop], name="sync-client", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def _result(future: Future[T]) -> T:
    """Wait for a result; cancel the work if the wait is interrupted."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
