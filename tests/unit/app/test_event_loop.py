"""How a server command lives and ends."""

import asyncio
import os
import signal

import pytest

from rocketbroker.app.event_loop import run, serve
from rocketbroker.common.errors import ConfigError


class Recorded:
    """A part that notes what is done to it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.events: list[str] = []
        self._error = error

    async def start(self) -> None:
        self.events.append("start")
        if self._error is not None:
            raise self._error

    async def stop(self) -> None:
        self.events.append("stop")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_part(number: signal.Signals) -> None:
    part = Recorded()

    def booted() -> None:
        part.events.append("booted")
        os.kill(os.getpid(), number)

    run(serve(part, booted))
    assert part.events == ["start", "booted", "stop"]


def test_a_signal_cancels_a_start_that_may_be_cancelled() -> None:
    part = Recorded()

    async def start() -> None:
        part.events.append("start")
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    part.start = start  # type: ignore[method-assign]
    run(serve(part, lambda: part.events.append("booted"), cancels_start=True))
    assert part.events == ["start"]


def test_a_coroutine_may_be_given_for_the_time_after_the_start() -> None:
    part = Recorded()

    async def booted() -> None:
        part.events.append("booted")
        os.kill(os.getpid(), signal.SIGTERM)

    run(serve(part, booted))
    assert part.events == ["start", "booted", "stop"]


def test_a_failed_start_is_raised_and_nothing_is_stopped() -> None:
    part = Recorded(ConfigError("no"))
    with pytest.raises(ConfigError, match="no"):
        run(serve(part, lambda: None))
    assert part.events == ["start"]


def test_a_part_is_stopped_when_what_follows_the_start_fails() -> None:
    part = Recorded()

    def booted() -> None:
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        run(serve(part, booted))
    assert part.events == ["start", "stop"]


def test_signals_are_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    part = Recorded()
    run(serve(part, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
