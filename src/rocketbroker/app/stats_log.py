"""Figures that a broker writes to stats.log and watermark.log while it has log files.

The counterpart of StatsItem.printAtMinutes, printAtHour and printAtDay, and of BrokerController.printWaterMark.
"""

import asyncio
import logging
from typing import Final, Literal

from rocketbroker.app.log_files import STATS_LOGGER, WATERMARK_LOGGER
from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.store.message_store import MessageStore

_MINUTE_S: Final = 60.0
_WATERMARK_S: Final = 10.0
_MINUTES_OF_HOUR: Final = 60
_MINUTES_OF_DAY: Final = 24 * _MINUTES_OF_HOUR
# Lines between two turns of the event loop.
_LINES_OF_TURN: Final = 200

_Window = Literal["Minute", "Hour", "Day"]


class StatsLog:
    """Writes both files; without them it starts no task.

    Args:
        stats: counters of topics and groups.
        fast_failure: sends that are not acknowledged yet.
        store: the log, its queues and its syncs.
    """

    def __init__(self, stats: BrokerStatsManager, fast_failure: BrokerFastFailure, store: MessageStore) -> None:
        self._stats = stats
        self._fast_failure = fast_failure
        self._store = store
        self._tasks = TaskOwner("StatsLog")
        self._minutes = 0
        self._stats_log = logging.getLogger(STATS_LOGGER)
        self._watermark_log = logging.getLogger(WATERMARK_LOGGER)

    async def start(self) -> None:
        if self._stats_log.isEnabledFor(logging.INFO):
            self._tasks.every(_MINUTE_S, self.minute, "stats.log")
        if self._watermark_log.isEnabledFor(logging.INFO):
            self._tasks.every(_WATERMARK_S, self.watermark, "watermark.log")

    async def stop(self) -> None:
        await self._tasks.stop()

    async def minute(self) -> None:
        """Log each counter that counted in the last minute; each hour and day, those of that time too."""
        self._minutes += 1
        await self._log("Minute")
        if self._minutes % _MINUTES_OF_HOUR == 0:
            await self._log("Hour")
        if self._minutes % _MINUTES_OF_DAY == 0:
            await self._log("Day")

    async def _log(self, window: _Window) -> None:
        lines = 0
        for name, key, data in list(self._stats.used()):
            snapshot = {"Minute": data.stats_minute, "Hour": data.stats_hour, "Day": data.stats_day}[window]
            if not snapshot.sum:
                continue
            # RocketMQ's line.
            text = "[%s] [%s] Stats In One %s, SUM: %d TPS: %.2f AVGPT: %.2f"
            self._stats_log.info(text, name, key, window, *snapshot)
            lines += 1
            if lines % _LINES_OF_TURN == 0:
                await asyncio.sleep(0)

    def watermark(self) -> None:
        """Log what waits: sends for their acknowledgement, messages for their queues and for the disk."""
        store, sends = self._store, self._fast_failure.runtime_info()
        end = store.commit_log.max_offset
        self._watermark_log.info(
            "[WATERMARK] Send Queue Size: %s SlowTimeMills: %s; not in queues: %d bytes, not on disk: %d bytes",
            sends["sendThreadPoolQueueSize"],
            sends["sendThreadPoolQueueHeadWaitTimeMills"],
            end - store.appender.dispatched_offset,
            max(end - store.flusher.flushed_offset, 0),
        )
