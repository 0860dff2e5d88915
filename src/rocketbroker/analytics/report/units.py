"""Numbers as text for people; times are UTC."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from rocketbroker.analytics.columns.message_schema import FIRST_MS, LAST_MS
from rocketbroker.analytics.report.figures import Unit

NOTHING: Final = "\N{EN DASH}"
_BYTES: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_THOUSAND: Final = 1000
_SPANS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def show(value: float | str | None, unit: Unit) -> str:
    """Return a value as text, a dash for None."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    return _SHOWN[unit](value)


def _count(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def _bytes(value: float) -> str:
    power = 0
    while power < len(_BYTES) - 1 and abs(value) >= _THOUSAND ** (power + 1):
        power += 1
    return f"{_three_digits(value / _THOUSAND**power)} {_BYTES[power]}"


def _span(value: float) -> str:
    """Return milliseconds in the largest unit that the span reaches."""
    for size, name in _SPANS:
        if abs(value) >= size:
            return f"{_three_digits(value / size)} {name}"
    return f"{value:.0f} ms"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _time(value: float) -> str:
    if not FIRST_MS <= value <= LAST_MS:
        return f"{value:.0f} ms since 1970"
    return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _share(value: float) -> str:
    return f"{value * 100:.1f} %"


_SHOWN: Final[dict[Unit, Callable[[float], str]]] = {
    Unit.COUNT: _count,
    Unit.BYTES: _bytes,
    Unit.MILLIS: _span,
    Unit.TIME: _time,
    Unit.SHARE: _share,
    Unit.TEXT: str,
}
