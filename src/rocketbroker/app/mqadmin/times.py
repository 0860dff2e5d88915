"""Times as RocketMQ's tools print them, in local time."""

from datetime import UTC, datetime

_FORM = "%Y-%m-%d#%H:%M:%S:%f"


def parse_time(text: str, now_ms: int) -> int:
    """``now``, a number of ms since 1970, or ``2026-11-21#09:59:24:121`` in local time; as ms since 1970.

    Raises:
        ValueError: it is none of them.
    """
    if text == "now":
        return now_ms
    if text.isdecimal():
        return int(text)
    seconds, _, millis = text.rpartition(":")
    if len(millis) != len("000"):
        raise ValueError(f"{text!r} is no time")
    return round(datetime.strptime(f"{seconds}:{millis}000", _FORM).astimezone().timestamp() * 1000)


def human_millis(time_ms: int) -> str:
    """``2026-11-21 09:59:24,121`` (UtilAll.timeMillisToHumanString2); empty when there is no time."""
    if time_ms <= 0:
        return ""
    return f"{_local(time_ms):%Y-%m-%d %H:%M:%S},{time_ms % 1000:03d}"


def human_seconds(time_ms: int) -> str:
    """``2026-11-21 09:59:24``; ``N/A`` when there is no time."""
    return f"{_local(time_ms):%Y-%m-%d %H:%M:%S}" if time_ms > 0 else "N/A"


def _local(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms // 1000, tz=UTC).astimezone()
