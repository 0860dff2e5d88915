"""Unique message ids (org.apache.rocketmq.common.message.MessageClientIDSetter)."""

import itertools
import os
import secrets
from datetime import UTC, datetime

from rocketbroker.codec.message.message_id import encode_unique_id, ip_bytes
from rocketbroker.common.clock import Clock, SystemClock


class UniqueIdGenerator:
    """Generator of ids from address, process, a random number, time and a counter.

    Args:
        ip: address of this machine, as text.
        clock: source of time.
    """

    def __init__(self, ip: str, clock: Clock | None = None) -> None:
        self._ip = ip_bytes(ip)
        self._pid = os.getpid()
        # Java takes a hash of its class loader; two generators of one process must differ likewise.
        self._salt = secrets.randbits(32)
        self._clock = clock or SystemClock()
        self._counter = itertools.count()
        self._month_start, self._next_month_start = 0, 0

    def create_unique_id(self) -> str:
        """Return the next id: 32 or 56 upper-case hex digits."""
        now = self._clock.time_ms()
        if not self._month_start <= now < self._next_month_start:
            self._month_start, self._next_month_start = month_around(now)
        return encode_unique_id(self._ip, self._pid, self._salt, now - self._month_start, next(self._counter))


def month_around(time_ms: int) -> tuple[int, int]:
    """Start of the local month that a time lies in, and of the next one; all in ms since the epoch."""
    here = datetime.fromtimestamp(time_ms / 1000, tz=UTC).astimezone()
    year, month = here.year, here.month
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    # A naive date means local time, daylight saving included.
    start, end = (int(datetime(*first, 1).timestamp() * 1000) for first in ((year, month), following))  # noqa: DTZ001
    return start, end
