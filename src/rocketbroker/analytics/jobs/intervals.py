"""Bounds of the intervals in which traffic is counted."""

from typing import Final

from rocketbroker.common.errors import ConfigError

_LONGEST: Final = 366 * 24 * 3600


def check_interval(seconds: int, unit: int = 1) -> None:
    """Refuse what no interval of traffic has.

    Args:
        seconds: the interval.
        unit: so many seconds it is a multiple of.

    Raises:
        ConfigError: it is shorter than a second, longer than a year, or no multiple.
    """
    if not 1 <= seconds <= _LONGEST:
        raise ConfigError(f"intervals of traffic have 1 to {_LONGEST:,} seconds, not {seconds:,}")
    if seconds % unit:
        raise ConfigError(f"queues tell traffic by whole minutes: --interval is a multiple of {unit}, not {seconds:,}")
