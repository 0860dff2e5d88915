"""The clock of a broker is set through a pipe, on the event loop."""

import asyncio
import os
from pathlib import Path

import pytest

from rocketbroker.testing.clocked_broker import ClockControl
from rocketbroker.testing.clocks import ControlledClock
from tests.support.waiting import until


async def obey_file(clock: ControlledClock, path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    control = ClockControl(clock, descriptor)
    try:
        await control.start()
        await control.stop()
    finally:
        os.close(descriptor)


async def test_a_file_is_obeyed_at_once_also_its_last_line_without_an_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    clock = ControlledClock()
    clock.obey("speed 0")
    began = clock.time_ms()
    commands = tmp_path / "commands"
    commands.write_text("step 5\nstep 7")
    await obey_file(clock, commands)
    assert capsys.readouterr().out.splitlines() == [f"CLOCK\t{began + 5000}", f"CLOCK\t{began + 12_000}"]


async def test_without_input_no_command_is_run(capsys: pytest.CaptureFixture[str]):
    await obey_file(ControlledClock(), Path(os.devnull))
    assert capsys.readouterr().out == ""


async def test_commands_are_obeyed_and_answered_in_their_order(capsys: pytest.CaptureFixture[str]):
    clock = ControlledClock()
    began = clock.time_ms()
    read, write = os.pipe()
    control = ClockControl(clock, read)
    await control.start()
    said = ""
    try:
        os.write(write, b"speed 0\nstep 36")
        await asyncio.sleep(0)
        os.write(write, b"00\nleap 1")
        os.close(write)

        def answered() -> bool:
            nonlocal said
            said += capsys.readouterr().out
            return said.count("\n") == 3

        await until(answered)
    finally:
        await control.stop()
        os.close(read)

    first, second, third = said.splitlines()
    stood_at = int(first.removeprefix("CLOCK\t"))
    assert stood_at >= began
    assert second == f"CLOCK\t{stood_at + 3_600_000}"
    assert third.startswith("CLOCK refused\t'leap 1' is no command of the clock")
    assert clock.time_ms() == stood_at + 3_600_000
