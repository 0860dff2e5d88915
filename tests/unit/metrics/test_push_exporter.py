"""Exports at an interval."""

import asyncio
from collections.abc import Awaitable

import pytest

from rocketbroker.metrics import push_exporter
from rocketbroker.metrics.data_points import Batch
from rocketbroker.metrics.family import Block, Report, counter
from rocketbroker.metrics.push_exporter import Outcome, PushExporter
from tests.support.fakes import FakeClock
from tests.support.running import running


class Sink:
    """Keeps the values of the batches that it takes."""

    def __init__(self) -> None:
        self.values: list[list[object]] = []
        self.outcomes: list[Outcome | Exception] = []
        self.arrived = asyncio.Event()
        self.is_stopped = False

    async def export(self, batch: Batch, *, in_delta: bool) -> Outcome:
        assert in_delta
        self.values.append([point.value for metric in batch.metrics for point in metric.points])
        self.arrived.set()
        outcome = self.outcomes.pop(0) if self.outcomes else Outcome.TAKEN
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def stop(self) -> None:
        self.is_stopped = True


class Source:
    """A source of two counts."""

    def __init__(self) -> None:
        self.count = 1
        self.is_serving = True

    def report(self) -> Awaitable[Report] | None:
        return self._report() if self.is_serving else None

    async def _report(self) -> Report:
        samples = [({"n": "1"}, self.count), ({"n": "2"}, self.count)]
        return Report({}, 100, [Block("s", [counter("c_total", samples)])])


def exporter(sink: Sink, source: Source, period_s: float = 0.01) -> PushExporter:
    return PushExporter(sink, period_s, lambda: 1, source.report, FakeClock(), in_delta=True)


async def test_metrics_are_exported_at_each_interval():
    sink, source = Sink(), Source()
    async with running(exporter(sink, source)):
        await asyncio.wait_for(sink.arrived.wait(), 60)
        source.count += 2
        sink.arrived.clear()
        await asyncio.wait_for(sink.arrived.wait(), 60)

    assert sink.values[:2] == [[1], [1]]
    assert [2] in sink.values
    assert sink.is_stopped


async def test_an_export_ends_when_no_batch_arrives_and_loses_no_count():
    sink, source = Sink(), Source()
    pushes = exporter(sink, source)
    sink.outcomes = [Outcome.UNREACHABLE]
    await pushes.export()
    assert sink.values == [[1]]

    source.count = 5
    await pushes.export()
    assert sink.values[1:] == [[5], [5]]


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, ValueError("it cannot be encoded")])
async def test_a_batch_that_is_refused_keeps_no_other_back(outcome: Outcome | Exception):
    sink, source = Sink(), Source()
    pushes = exporter(sink, source)
    sink.outcomes = [outcome]
    await pushes.export()
    source.count = 5
    await pushes.export()

    assert sink.values == [[1], [1], [5], [4]]


async def test_a_stop_exports_what_was_counted_since_the_last_interval():
    sink, source = Sink(), Source()
    async with running(exporter(sink, source, period_s=600)) as pushes:
        await pushes.finish()
        source.count = 5

    assert sink.values == [[1], [1]]
    assert sink.is_stopped


async def test_a_stop_waits_for_no_exporter(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(push_exporter, "LAST_EXPORT_S", 0.01)
    sink, source = Sink(), Source()
    monkeypatch.setattr(sink, "export", lambda *_args, **_names: asyncio.Event().wait())
    await exporter(sink, source).stop()

    assert "the last export did not end within 0.01 s" in caplog.text
    assert sink.is_stopped


async def test_nothing_is_exported_while_there_are_no_metrics():
    sink, source = Sink(), Source()
    source.is_serving = False
    await exporter(sink, source).export()

    assert sink.values == []
