"""Life of a server command: run on uvloop if installed, until SIGTERM or SIGINT, then stop in order."""

import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine

from rocketbroker.common.lifecycle import Part

# Time for which a thread waits for the interpreter before it asks the event loop to yield. With Python's 5 ms the flush
# thread waits longer to begin a sync, and to report it, than the disk takes; with far less the threads hinder
# each other.
SWITCH_INTERVAL_S = 0.0002


def run(main: Coroutine[None, None, None]) -> None:
    """Run a coroutine on a new event loop, of uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    else:
        factory = uvloop.new_event_loop
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


async def serve(part: Part, booted: Callable[[], Awaitable[None] | None], *, cancels_start: bool = False) -> None:
    """Start a part, call ``booted``, wait for SIGTERM or SIGINT, stop the part.

    A signal during the start takes effect after it, or cancels it if ``cancels_start``. Errors of the start are raised.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    starting = loop.create_task(part.start())

    def stop() -> None:
        if cancels_start and not stopped.is_set():
            starting.cancel()
        stopped.set()

    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        await asyncio.wait((starting,))
        if starting.cancelled():
            return
        starting.result()
        try:
            said = booted()
            if said is not None:
                await said
            await stopped.wait()
        finally:
            await part.stop()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def spare_the_collector() -> None:
    """Exempt all objects from garbage collection, and collect rarely: for a process that is one server."""
    # Nothing on the hot path creates cycles, so collections only cost time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)
