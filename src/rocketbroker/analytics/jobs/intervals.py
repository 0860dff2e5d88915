"""Check of traffic intervals."""

from typing import Final

from rocketbroker.common.errors import ConfigError

_LONGEST: Final = 366 * 24 * 3600


def check_interval(seconds: int, unit: int = 1) -> None:
    """Raise :class:`ConfigError` unless an interval is 1 second to a year long, and a multiple of ``unit`` seconds."""
    if not 1 <= seconds <= _LONGEST:
        raise ConfigError(f"--interval {seconds:,} is out of range; give 1 to {_LONGEST:,} seconds")
    if seconds % unit:
        raise ConfigError(f"--interval {seconds:,}: traffic from queues is by whole minutes; give a multiple of {unit}")
