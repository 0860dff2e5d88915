"""Unique ids for messages of clients that give none (org.apache.rocketmq.common.message.MessageClientIDSetter)."""

import itertools

from rocketbroker.codec.message.message_id import encode_unique_id
from rocketbroker.common.clock import Clock

_MONTH_MS = 31 * 24 * 3600 * 1000


class UniqueIds:
    """Makes ids that no other process makes.

    Args:
        ip: the broker's address, 4 or 16 bytes.
        pid: the process id.
        clock: ids hold the time, within a month, in ms.
    """

    def __init__(self, ip: bytes, pid: int, clock: Clock) -> None:
        self._ip = ip
        self._pid = pid
        self._clock = clock
        self._counter = itertools.count()
        # Where Java has the hash of its class loader: parts brokers of one process.
        self._instance = id(self) >> 4 & 0x7FFFFFFF

    def create(self) -> bytes:
        """The next id, upper-case hex."""
        now = self._clock.time_ms() % _MONTH_MS
        return encode_unique_id(self._ip, self._pid, self._instance, now, next(self._counter)).encode()
