"""Delay levels (MessageStoreConfig.messageDelayLevel, ScheduleMessageService.parseDelayLevel)."""

from typing import Final

from rocketbroker.common.errors import ConfigError

# Most digits of a number; Java's int has no more.
_LONGEST_LEVEL: Final = 10
_TOO_LARGE: Final = 1 << 63
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> dict[int, int]:
    """Return the milliseconds by level, the first level being 1, from a text such as ``1s 5s 10m 2h``.

    Raises:
        ConfigError: A part is not a number with a unit.
    """
    table = {}
    for level, part in enumerate(text.split(), 1):
        number, unit = part[:-1], part[-1:]
        if unit not in _UNITS_MS or not (number.isascii() and number.isdigit()):
            raise ConfigError(
                f"messageDelayLevel: {part!r} is not a delay; write a number with s, m, h or d, as in 10s"
            )
        table[level] = int(number) * _UNITS_MS[unit]
    return table


def deliver_timestamp(levels: dict[int, int], level: int, store_timestamp: int) -> int:
    """Return the due time in ms of a message stored at ``store_timestamp``; an unknown level means 1 s.

    It is a long, as in Java: the level of a damaged record may be any number, and a time beyond a long wraps around.
    """
    return (store_timestamp + levels.get(level, 1000) + _TOO_LARGE) % (2 * _TOO_LARGE) - _TOO_LARGE


def level_of(raw: bytes) -> int:
    """Return a message's delay level from the value of its property; 0 if that is not a number."""
    return int(raw) if raw.isdigit() and len(raw) <= _LONGEST_LEVEL else 0
