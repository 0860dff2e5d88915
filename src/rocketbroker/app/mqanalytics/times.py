"""Times as users give them and as they are shown."""

from datetime import UTC, datetime
from typing import Any

import typer

_EXPECTED = (
    "a date and time with its zone is expected, as 2026-11-22T04:00:00Z or 2026-11-22T05:00:00+01:00, or ms since 1970"
)


def parse_time(text: str) -> int:
    """An ISO 8601 time with a zone, or a number of ms since 1970; as ms since 1970.

    Raises:
        typer.BadParameter: it is neither.
    """
    if text.isascii() and text.lstrip("-").isdigit():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no time: {_EXPECTED}") from error
    if found.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no zone: {_EXPECTED}")
    return to_ms(found)


def to_ms(moment: datetime) -> int:
    """A time with a zone in ms since 1970, earlier parts of one dropped."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND


_MILLISECOND = datetime(1970, 1, 1, microsecond=1000, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)


def shown_time(moment: datetime) -> str:
    """``2026-11-22T04:00:00Z``, with milliseconds where there are any."""
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    return text.removesuffix(".000") + "Z"


def shown_ms(time_ms: int) -> str:
    """As ``shown_time``, and with the number itself, which is all there is of a time that no calendar has."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + time_ms * _MILLISECOND
    except OverflowError:
        return f"{time_ms} (ms since 1970)"
    return f"{shown_time(moment)} ({time_ms} ms since 1970)"


def plain(value: Any) -> Any:
    """``value`` for JSON: times in ms since 1970."""
    return to_ms(value) if isinstance(value, datetime) else value
