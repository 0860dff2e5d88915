"""Bounds of the intervals in which traffic is counted."""

from typing import Final

from rocketbroker.common.errors import ConfigError

_LONGEST: Final = 366 * 24 * 3600


def check_interval(seconds: int, unit: int = 1) -> None:
    """Raise an error unless an interval of traffic is valid.

    Args:
        seconds: the interval.
        unit: seconds of which it must be a multiple.

    Raises:
        ConfigError: it is shorter than a second, longer than a year, or not a multiple.
    """
    if not 1 <= seconds <= _LONGEST:
        raise ConfigError(f"--interval {seconds:,}: 1 to {_LONGEST:,} seconds are expected")
    if seconds % unit:
        raise ConfigError(
            f"--interval {seconds:,}: traffic from queues is by whole minutes, a multiple of {unit} is expected"
        )
