"""Parsing and formatting of times for the tools."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import typer

from rocketbroker.common.clock import SystemClock

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
# The form of RocketMQ's tools, 2026-11-22#04:00:00:000, with microseconds.
_ROCKETMQ_FORM: Final = "%Y-%m-%d#%H:%M:%S:%f"

TIME_FORMS: Final = (
    "2026-11-22, 2026-11-22T04:00:00, 2026-11-22T04:00:00Z, 2026-11-22#04:00:00:000, ms since 1970 or now"
)


def parse_time(text: str) -> int:
    """Parse a time in one of ``TIME_FORMS`` to ms since 1970; a time without a zone is local.

    Raises:
        typer.BadParameter: the text has none of these forms.
    """
    text = text.strip()
    if text == "now":
        return SystemClock().time_ms()
    if text.isascii() and text.removeprefix("-").isdigit():
        return int(text)
    try:
        if "#" in text:
            return to_ms(datetime.strptime(f"{text}000", _ROCKETMQ_FORM).astimezone())
        return to_ms(datetime.fromisoformat(text).astimezone())
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is not a time; expected {TIME_FORMS}") from None


def to_ms(moment: datetime) -> int:
    """Return a time with a zone as ms since 1970, rounded down."""
    return (moment - _EPOCH) // _MILLISECOND


def plain(value: Any) -> Any:
    """Return ``value`` for JSON: times as ms since 1970."""
    return to_ms(value) if isinstance(value, datetime) else value


# -- shown in UTC, by mqanalytics


def shown_time(moment: datetime) -> str:
    """Return ``2026-11-22T04:00:00Z``, with milliseconds unless they are 0."""
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    return text.removesuffix(".000") + "Z"


def shown_ms(time_ms: int) -> str:
    """Return ``shown_time`` with the number of ms, or the number alone if no calendar has the time."""
    try:
        moment = _EPOCH + time_ms * _MILLISECOND
    except OverflowError:
        return f"{time_ms} (ms since 1970)"
    return f"{shown_time(moment)} ({time_ms} ms since 1970)"


# -- shown in local time, as RocketMQ's tools do


def human_millis(time_ms: int) -> str:
    """Return ``2026-11-21 09:59:24,121`` (UtilAll.timeMillisToHumanString2); empty for no time."""
    return f"{_local(time_ms):%Y-%m-%d %H:%M:%S},{time_ms % 1000:03d}" if time_ms > 0 else ""


def human_seconds(time_ms: int) -> str:
    """Return ``2026-11-21 09:59:24``; ``N/A`` for no time."""
    return f"{_local(time_ms):%Y-%m-%d %H:%M:%S}" if time_ms > 0 else "N/A"


def _local(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms // 1000, tz=UTC).astimezone()
