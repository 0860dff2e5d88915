"""A broker whose clock a test sets: ``mqbroker`` with another clock, for hours of delay in seconds.

python -m rocketbroker.testing.clocked_broker -c broker.properties [--clock "step 3600"]

Commands of the clock (``ControlledClock.obey``) come by standard input, a line each. Each is answered by a line
``CLOCK`` on standard output with the time in ms, or by ``CLOCK refused`` and why. When the input ends, the clock goes
on.

What the broker promises its clients by their own time goes by the system's clock as ever: how long a pull is held, how
long a connection may take.
"""

import asyncio
import os
import sys
from typing import Annotated

import typer

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.broker_startup import tell_booted
from rocketbroker.app.command_line import new_app
from rocketbroker.app.event_loop import run, serve
from rocketbroker.app.logging_setup import set_up_logging
from rocketbroker.common.config.load import load_broker_settings
from rocketbroker.common.errors import ConfigError, StoreError
from rocketbroker.common.lifecycle import PartList
from rocketbroker.common.open_files import raise_open_file_limit
from rocketbroker.testing.controlled_clock import ControlledClock

app = new_app(add_completion=False)


class ClockControl:
    """Reads commands from a pipe on the event loop, so that no message is half way while the clock is set.

    Args:
        clock: obeys.
        pipe: descriptor to read from; who gave it closes it.
    """

    def __init__(self, clock: ControlledClock, pipe: int) -> None:
        self._clock = clock
        self._pipe = pipe
        self._unread = b""

    async def start(self) -> None:
        """Read from now on; a file, and /dev/null, at once and to its end."""
        try:
            asyncio.get_running_loop().add_reader(self._pipe, self._read)
        except PermissionError:  # nothing to wait for: all that will ever be in it is there
            while self._read():
                pass

    async def stop(self) -> None:
        """Read no more."""
        asyncio.get_running_loop().remove_reader(self._pipe)

    def _read(self) -> bool:
        """Obey what has come; false when that was the end."""
        data = os.read(self._pipe, 4096)
        *lines, self._unread = (self._unread + data).split(b"\n")
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipe)
            lines, self._unread = [self._unread] if self._unread else [], b""
        for line in lines:
            print(self.answer(line.decode(errors="replace")), flush=True)
        return bool(data)

    def answer(self, command: str) -> str:
        """Obey a command; returns the line that says so."""
        try:
            self._clock.obey(command)
        except ValueError as error:
            return f"CLOCK refused\t{error}"
        return f"CLOCK\t{self._clock.time_ms()}"


@app.command()
def clocked_broker(
    config_file: Annotated[str, typer.Option("-c", "--configFile", help="Properties file.")],
    clock: Annotated[list[str] | None, typer.Option(help="Commands of the clock before the start.")] = None,
) -> None:
    """Run a RocketMQ broker with a clock that is set by standard input, until SIGTERM or SIGINT."""
    controlled = ControlledClock()
    try:
        for command in clock or ():
            controlled.obey(command)
        settings = load_broker_settings(config_file, None)
        set_up_logging()
        raise_open_file_limit(settings.transport.reserved_open_files)
        controller = BrokerController.bind(settings, controlled)
        control = ClockControl(controlled, sys.stdin.fileno())
        run(serve(PartList(control, controller), lambda: tell_booted(settings, controller)))
    except (ConfigError, StoreError, ValueError) as error:
        print(f"clocked_broker: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


def main() -> None:
    """Entry point of the module."""
    app(prog_name="clocked_broker")


if __name__ == "__main__":
    main()
