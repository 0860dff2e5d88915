"""Unique message ids (org.apache.rocketmq.common.message.MessageClientIDSetter)."""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime

from rocketbroker.codec.message.message_id import encode_unique_id


class UniqueIds:
    """Generator of ids from address, process, a random number, time and a counter.

    Args:
        ip: address of this machine, 4 or 16 bytes.
        pid: the process id.
        salt: a random number of 32 bits, like the hash of the class loader in Java; generators of one process must have
            different ones.
        time_ms: returns the time in ms since the epoch.
    """

    def __init__(self, ip: bytes, pid: int, salt: int, time_ms: Callable[[], int]) -> None:
        # All but time and counter, which are the last 12 digits.
        self._prefix = encode_unique_id(ip, pid, salt, 0, 0)[:-12]
        self._time_ms = time_ms
        self._counter = itertools.count()
        self._month_start, self._next_month_start = 0, 0

    def create(self) -> str:
        """Return the next id: 32 or 56 upper-case hex digits."""
        now = self._time_ms()
        if not self._month_start <= now < self._next_month_start:
            self._month_start, self._next_month_start = month_around(now)
        return f"{self._prefix}{now - self._month_start:08X}{next(self._counter) & 0xFFFF:04X}"


def month_around(time_ms: int) -> tuple[int, int]:
    """Return the start of the local month of a time, and of the next month; all in ms since the epoch."""
    here = datetime.fromtimestamp(time_ms / 1000, tz=UTC).astimezone()
    year, month = here.year, here.month
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    # A naive date means local time, daylight saving included.
    start, end = (int(datetime(*first, 1).timestamp() * 1000) for first in ((year, month), following))  # noqa: DTZ001
    return start, end
