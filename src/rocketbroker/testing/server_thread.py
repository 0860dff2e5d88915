"""Thread with an event loop of its own, so that neither a test nor its loop can hold up the server."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class ServerThread:
    """A thread that runs an event loop from ``start`` to ``stop``.

    Args:
        make_loop: makes the loop.
    """

    def __init__(self, make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._loop = make_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="RocketMQServer", daemon=True)
        self._thawed = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._wait())

    async def _wait(self) -> None:
        await self._stopping.wait()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the loop, and wait for its result."""

        async def run() -> T:
            return function()

        return self.submit(run()).result()

    def freeze(self) -> None:
        """Hold the loop until ``thaw``."""
        held = threading.Event()

        def hold() -> None:
            held.set()
            self._thawed.wait()

        self._thawed.clear()
        self._loop.call_soon_threadsafe(hold)
        held.wait()

    def thaw(self) -> None:
        """Let the loop run."""
        self._thawed.set()

    def stop(self) -> None:
        """Let the loop end."""
        self._loop.call_soon_threadsafe(self._stopping.set)

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()
