"""Export of all metrics at an interval (PeriodicMetricReader), for exporters that no one asks."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Protocol

from rocketbroker.common.clock import Clock
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.metrics.data_points import Batch, DataPoints
from rocketbroker.metrics.family import Report


class Exporter(Protocol):
    """A receiver of batches."""

    async def export(self, batch: Batch, *, in_delta: bool) -> bool:
        """Export a batch; return false if it did not arrive."""

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

    async def start(self) -> None:
        """Begin to export, after the first interval."""
        self._tasks.every(self._period_s, self.export, "export")

    async def stop(self) -> None:
        """End the export that is under way, and free the connection."""
        await self._tasks.stop()
        await self._exporter.stop()

    async def export(self) -> None:
        """Export all metrics once, up to a batch that does not arrive."""
        report = self._report()
        if report is None:
            return
        points = self._points
        async with aclosing(points.batches(await report, self._most())) as batches:
            async for batch in batches:
                if not await self._exporter.export(batch, in_delta=points.in_delta):
                    return
                points.exported(batch)
