"""Export of all metrics at an interval (PeriodicMetricReader), for exporters that no one asks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from enum import Enum, auto
from typing import Final, Protocol

from rocketbroker.common.clock import Clock
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.metrics.data_points import Batch, DataPoints
from rocketbroker.metrics.family import Report

log = logging.getLogger(__name__)

#: Longest time of the last export, in seconds: a stop waits for it.
LAST_EXPORT_S: Final = 3.0


class Outcome(Enum):
    """Fate of a batch."""

    TAKEN = auto()
    #: This batch was not taken; others may be.
    REFUSED = auto()
    #: No batch would be taken now.
    UNREACHABLE = auto()


class Exporter(Protocol):
    """A receiver of batches."""

    async def export(self, batch: Batch, *, in_delta: bool) -> Outcome:
        """Export a batch."""

    async def stop(self) -> None:
        """Free what it holds."""


class PushExporter:
    """Exports a report at each interval.

    Args:
        exporter: where batches go.
        period_s: the interval.
        most: returns the most data points of a batch.
        report: returns the metrics; ``None`` while there are none.
        clock: the time of points.
        in_delta: true to export counts since the last export.
    """

    def __init__(
        self,
        exporter: Exporter,
        period_s: float,
        most: Callable[[], int],
        report: Callable[[], Awaitable[Report] | None],
        clock: Clock,
        *,
        in_delta: bool,
    ) -> None:
        self._exporter = exporter
        self._period_s = period_s
        self._most = most
        self._report = report
        self._points = DataPoints(clock, in_delta=in_delta)
        self._tasks = TaskOwner("PushExporter")
        self._is_finished = False

    async def start(self) -> None:
        """Begin to export, after the first interval."""
        self._tasks.every(self._period_s, self.export, "export")

    async def finish(self) -> None:
        """End the export that is under way and export a last time; nothing is exported after it.

        While the parts that the report reads still run: the counts since the last interval would be lost otherwise.
        """
        if self._is_finished:
            return
        self._is_finished = True
        await self._tasks.stop()
        try:
            async with asyncio.timeout(LAST_EXPORT_S):
                await self.export()
        except TimeoutError:
            log.warning("metrics: the last export did not end within %g s", LAST_EXPORT_S)

    async def stop(self) -> None:
        """Export a last time and free the connection."""
        try:
            await self.finish()
        finally:
            await self._exporter.stop()

    async def export(self) -> None:
        """Export all metrics once, up to a batch for which the receiver cannot be reached.

        One batch that is never taken must not keep the others back. Its counts are in the next export again.
        """
        report = self._report()
        if report is None:
            return
        points = self._points
        async with aclosing(points.batches(await report, self._most())) as batches:
            async for batch in batches:
                try:
                    outcome = await self._exporter.export(batch, in_delta=points.in_delta)
                except Exception:
                    log.exception("metrics: a batch cannot be exported; the others are")
                    outcome = Outcome.REFUSED
                if outcome is Outcome.UNREACHABLE:
                    return
                if outcome is Outcome.TAKEN:
                    points.exported(batch)
