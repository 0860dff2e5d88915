"""Time as a test wants it: set, passed, faster."""

import pytest

from rocketbroker.common.clock import SystemClock
from rocketbroker.testing.clocks import ControlledClock


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The system's monotonic clock in ns, which stands still."""
    now = [7_000_000_000]
    monkeypatch.setattr("rocketbroker.testing.clocks.time.monotonic_ns", lambda: now[0])
    return now


def test_it_begins_as_the_clock_of_the_system():
    before = SystemClock()
    wall, monotonic = before.time_ms(), before.monotonic()
    clock = ControlledClock()

    assert wall <= clock.time_ms() <= before.time_ms()
    assert monotonic <= clock.monotonic() <= before.monotonic()


@pytest.mark.parametrize("seconds", [3600, -3600, 0.25])
def test_a_step_moves_the_wall_clock_alone(real: list[int], seconds: float):
    clock = ControlledClock()
    wall, monotonic = clock.time_ms(), clock.monotonic()
    clock.obey(f"step {seconds}\n")
    real[0] += 1_000_000_000

    assert clock.time_ms() - wall == seconds * 1000 + 1000
    assert clock.monotonic() - monotonic == 1.0


@pytest.mark.parametrize("time_ms", range(1795330433700, 1795330433764))
def test_it_is_set_to_a_time_and_continues_from_there(real: list[int], time_ms: int):
    clock = ControlledClock()
    monotonic = clock.monotonic()
    clock.obey("speed 0")
    clock.obey(f"set {time_ms}")
    assert (clock.time_ms(), clock.monotonic()) == (time_ms, monotonic)
    clock.obey("step 19")
    assert clock.time_ms() == time_ms + 19_000


def test_time_passes_on_both(real: list[int]):
    clock = ControlledClock()
    wall, monotonic = clock.time_ms(), clock.monotonic()
    clock.obey("advance 60.5")

    assert (clock.time_ms() - wall, clock.monotonic() - monotonic) == (60_500, 60.5)


def test_a_speed_counts_from_when_it_is_set(real: list[int]):
    clock = ControlledClock()
    wall, monotonic = clock.time_ms(), clock.monotonic()
    real[0] += 2_000_000_000
    clock.obey("speed 100")
    real[0] += 3_000_000_000
    assert (clock.time_ms() - wall, clock.monotonic() - monotonic) == (302_000, 302.0)

    clock.obey("speed 0")
    real[0] += 5_000_000_000
    assert clock.time_ms() - wall == 302_000
    clock.obey("speed 1")
    real[0] += 1_000_000_000
    assert (clock.time_ms() - wall, clock.monotonic() - monotonic) == (303_000, 303.0)


@pytest.mark.parametrize("command", ["", "step", "step x", "step nan", "leap 3", "advance -1", "speed -1", "speed inf"])
def test_what_is_no_command_is_rejected_and_changes_nothing(real: list[int], command: str):
    clock = ControlledClock()
    before = (clock.time_ms(), clock.monotonic())
    with pytest.raises(ValueError, match=r"would|0 or more"):
        clock.obey(command)

    assert (clock.time_ms(), clock.monotonic()) == before
