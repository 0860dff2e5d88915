"""Lag of the slaves of a master, in bytes and seconds."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from operator import itemgetter
from typing import Final

from rocketbroker.common.clock import Clock
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.ha.ha_client import HAClient
from rocketbroker.ha.ha_service import HAService
from rocketbroker.metrics.family import Family, Samples, gauge

# An hour, one mark a second; a slave that is further behind has at least this lag.
_MOST_MARKS: Final = 3600


class ReplicationMetrics:
    """Metrics of both ends of replication.

    The time by which a slave is behind is that since the log ended where the slave's does. So the end of the log is
    noted every second.

    Args:
        service: the slaves of a master.
        client: the master of a slave.
        is_slave: true at a slave.
    """

    def __init__(self, service: HAService, client: HAClient, clock: Clock, *, is_slave: bool) -> None:
        self._service = service
        self._client = client
        self._clock = clock
        self._is_slave = is_slave
        # Ends of the log and the time at which it was first seen to end there; it grows at each.
        self._marks: deque[tuple[int, float]] = deque(maxlen=_MOST_MARKS)
        self._tasks = TaskOwner("ReplicationMetrics")

    async def start(self) -> None:
        if not self._is_slave:
            self._tasks.every(1.0, self.mark, "mark")

    async def stop(self) -> None:
        await self._tasks.stop()

    def mark(self) -> None:
        """Note the end of the log, if slaves copy it."""
        if not self._service.slaves:
            self._marks.clear()
            return
        end = self._service.runtime_info().master_commit_log_max_offset
        if not self._marks or end > self._marks[-1][0]:
            self._marks.append((end, self._clock.monotonic()))

    def families(self) -> Iterator[Family]:
        """Yield the metrics of this role."""
        if self._is_slave:
            yield gauge(
                "rocketbroker_replication_connected",
                [({}, int(not self._client.problem))],
                "1 while this slave follows its master.",
            )
            return
        yield gauge(
            "rocketbroker_replication_slaves",
            [({}, len(self._service.slaves))],
            "Connected slaves of this master.",
        )
        yield gauge("rocketbroker_replication_lag_bytes", self._lag_bytes(), "Bytes of the log that a slave lacks.")
        yield gauge(
            "rocketbroker_replication_lag_seconds",
            self._lag_seconds(),
            "Time since the log ended where that of the slave ends, 0 if it has all; at most an hour.",
        )

    def _lag_bytes(self) -> Samples:
        for slave in self._service.runtime_info().ha_connection_info:
            yield {"slave": slave.addr}, max(slave.diff, 0)

    def _lag_seconds(self) -> Samples:
        for slave in self._service.runtime_info().ha_connection_info:
            yield {"slave": slave.addr}, self.lag_s(slave.slave_ack_offset, slave.diff)

    def lag_s(self, ack_offset: int, behind: int) -> float:
        """Return the seconds by which a slave is behind."""
        if behind <= 0 or not self._marks:
            return 0.0
        # The first mark beyond what the slave has: by then it was behind.
        first = bisect_right(self._marks, ack_offset, key=itemgetter(0))
        if first == len(self._marks):
            # It lacks only what came after the last mark, less than a second ago.
            return 0.0
        return max(self._clock.monotonic() - self._marks[first][1], 0.0)
