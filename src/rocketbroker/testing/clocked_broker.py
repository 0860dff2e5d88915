"""Broker with a clock that tests set: hours of delay pass in seconds.

python -m rocketbroker.testing.clocked_broker -c broker.properties [--clock "step 3600"]

Each line of standard input is a command of the clock (``ControlledClock.obey``). The answer on standard output is
``CLOCK`` with the time in ms, or ``CLOCK refused`` with the reason. At the end of the input the clock keeps running.

Timeouts that clients measure follow the system's clock: held pulls and connection attempts.
"""

import asyncio
import os
import sys
from typing import Annotated

import typer

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.broker_startup import announce
from rocketbroker.app.command_line import new_app
from rocketbroker.app.logging_setup import set_up_logging
from rocketbroker.app.server_process import run, serve, spare_the_collector
from rocketbroker.common.config.load import load_broker_settings
from rocketbroker.common.errors import ConfigError, StoreError
from rocketbroker.common.lifecycle import PartList
from rocketbroker.common.open_files import raise_open_file_limit
from rocketbroker.testing.clocks import ControlledClock

app = new_app(add_completion=False)


class ClockControl:
    """Read commands from a pipe on the event loop, so that the clock never changes within a request.

    Args:
        clock: clock to set.
        pipe: descriptor to read from; the caller closes it.
    """

    def __init__(self, clock: ControlledClock, pipe: int) -> None:
        self._clock = clock
        self._pipe = pipe
        self._unread = b""

    async def start(self) -> None:
        """Start to read; a file or /dev/null is read to its end at once."""
        try:
            asyncio.get_running_loop().add_reader(self._pipe, self._read)
        except PermissionError:  # a regular file, which is complete
            while self._read():
                pass

    async def stop(self) -> None:
        """Stop reading."""
        asyncio.get_running_loop().remove_reader(self._pipe)

    def _read(self) -> bool:
        """Run the commands received; return false at the end of the input."""
        data = os.read(self._pipe, 4096)
        *lines, self._unread = (self._unread + data).split(b"\n")
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipe)
            lines, self._unread = [self._unread] if self._unread else [], b""
        for line in lines:
            print(self.answer(line.decode(errors="replace")), flush=True)
        return bool(data)

    def answer(self, command: str) -> str:
        """Run a command and return the answer line."""
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
    """Run a broker until SIGTERM or SIGINT, with a clock set by standard input."""
    controlled = ControlledClock()
    try:
        for command in clock or ():
            controlled.obey(command)
        settings = load_broker_settings(config_file, None)
        set_up_logging()
        raise_open_file_limit(settings.transport.reserved_open_files)
        controller = BrokerController.bind(settings, controlled, when_warm=spare_the_collector)
        control = ClockControl(controlled, sys.stdin.fileno())
        run(serve(PartList(control, controller), lambda: announce(settings, controller)))
    except (ConfigError, StoreError, ValueError) as error:
        print(f"clocked_broker: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


def main() -> None:
    """Entry point of the module."""
    app(prog_name="clocked_broker")


if __name__ == "__main__":
    main()
