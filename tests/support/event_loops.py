"""Event loops that tests of the transport run on: plain asyncio in debug mode, and uvloop."""

import asyncio

import pytest
import uvloop


class DebugPolicy(asyncio.DefaultEventLoopPolicy):
    """Loops of asyncio that check their callers."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = super().new_event_loop()
        loop.set_debug(True)
        return loop


BOTH_LOOPS = [pytest.param(DebugPolicy(), id="asyncio"), pytest.param(uvloop.EventLoopPolicy(), id="uvloop")]
