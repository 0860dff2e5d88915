"""Data points of OpenTelemetry: names, batches, and counts since the last export."""

import json
from pathlib import Path

import pytest

from rocketbroker.common.histogram import Histogram
from rocketbroker.metrics.data_points import Batch, Buckets, DataPoints, Point, otel_name
from rocketbroker.metrics.family import Block, Family, Report, counter, gauge, histogram
from tests.support.fakes import FakeClock

GOLDEN = Path(__file__).parents[2] / "golden" / "metrics" / "apache-5.5.0-otlp.json"
START_NS = 5_000 * 1_000_000


def report(*families: Family, limit: int = 100) -> Report:
    return Report({"cluster": "C"}, limit, [Block("broker-meter", families)])


class Exports:
    """Exports of one process, a second apart."""

    def __init__(self, *, in_delta: bool) -> None:
        self.clock = FakeClock(5_000)
        self.points = DataPoints(self.clock, in_delta=in_delta)

    async def next(self, *families: Family, most: int = 100, arrives: bool = True) -> list[list[Point]]:
        """Return the points of each batch of the next export."""
        self.clock.advance(1)
        found = []
        async for batch in self.points.batches(report(*families), most):
            found.append([point for metric in batch.metrics for point in metric.points])
            if arrives:
                self.points.exported(batch)
        return found


@pytest.mark.parametrize("name", sorted(json.loads(GOLDEN.read_text())))
def test_names_and_units_are_those_of_apaches_instruments(name: str):
    assert list(otel_name(name)) == json.loads(GOLDEN.read_text())[name]


def test_names_of_ours_follow_the_same_rule():
    assert otel_name("rocketbroker_event_loop_lag_seconds") == ("rocketbroker_event_loop_lag", "seconds")
    assert otel_name("rocketbroker_sync_errors_total") == ("rocketbroker_sync_errors_total", "")


async def test_counters_count_from_the_start():
    exports = Exports(in_delta=False)
    await exports.next(counter("c_total", [({}, 3)]))

    assert await exports.next(counter("c_total", [({}, 5)])) == [[Point({}, 5, START_NS)]]


async def test_deltas_are_what_was_added_since_the_last_export():
    exports = Exports(in_delta=True)
    first = await exports.next(counter("c_total", [({}, 3)]), gauge("g", [({}, 7)]))
    second = await exports.next(counter("c_total", [({}, 5)]), gauge("g", [({}, 7)]))

    assert first == [[Point({}, 3, START_NS), Point({}, 7, START_NS)]]
    assert second == [[Point({}, 2, START_NS + 10**9), Point({}, 7, START_NS)]]


async def test_a_count_without_change_is_no_delta():
    exports = Exports(in_delta=True)
    await exports.next(counter("c_total", [({}, 3)]))

    assert await exports.next(counter("c_total", [({}, 3)])) == []


async def test_a_delta_that_did_not_arrive_is_in_the_next_export():
    exports = Exports(in_delta=True)
    await exports.next(counter("c_total", [({}, 3)]))
    await exports.next(counter("c_total", [({}, 4)]), arrives=False)

    assert await exports.next(counter("c_total", [({}, 6)])) == [[Point({}, 3, START_NS + 10**9)]]


async def test_a_count_that_began_again_is_a_delta_by_itself():
    exports = Exports(in_delta=True)
    await exports.next(counter("c_total", [({"topic": "T"}, 9)]))
    assert await exports.next(counter("c_total", [({"topic": "T"}, 2)])) == [
        [Point({"topic": "T"}, 2, START_NS + 10**9)]
    ]
    # A deleted topic leaves nothing to count from.
    await exports.next(counter("c_total", []))
    (last,) = await exports.next(counter("c_total", [({"topic": "T"}, 3)]))
    assert [point.value for point in last] == [3]


async def test_a_distribution_has_deltas_by_bucket():
    exports, times = Exports(in_delta=True), Histogram((1, 10))
    times.add(0.5)
    await exports.next(histogram("h", [({}, times)], "Help"))
    times.add(5, 2)

    ((point,),) = await exports.next(histogram("h", [({}, times)], "Help"))
    assert point.value == Buckets(2, 10.0, (0, 2, 0), (1, 10))


async def test_a_distribution_that_began_again_is_a_delta_by_itself():
    exports, times = Exports(in_delta=True), Histogram((1, 10))
    times.add(0.5, 100)
    await exports.next(histogram("h", [({}, times)], "Help"))
    again = Histogram((1, 10))
    again.add(5, 150)

    ((point,),) = await exports.next(histogram("h", [({}, again)], "Help"))
    assert point.value == Buckets(150, 750, (0, 150, 0), (1, 10))


async def test_counts_of_ended_label_sets_are_forgotten_beside_new_ones():
    exports = Exports(in_delta=True)
    await exports.next(counter("c_total", [({"topic": "A"}, 5)]))
    await exports.next(counter("c_total", [({"topic": "B"}, 1)]))

    ((point,),) = await exports.next(counter("c_total", [({"topic": "A"}, 7), ({"topic": "B"}, 1)]))
    assert point.value == 7


async def test_batches_have_at_most_so_many_points():
    families = [gauge("a", [({"n": str(each)}, each) for each in range(5)]), gauge("b", [({}, 1)] * 2)]
    batches = await Exports(in_delta=False).next(*families, most=3)

    assert [len(points) for points in batches] == [3, 3, 1]
    assert [point.value for points in batches for point in points] == [0, 1, 2, 3, 4, 1, 1]


async def test_a_batch_that_is_full_at_the_end_has_no_empty_one_behind_it():
    assert len(await Exports(in_delta=False).next(gauge("a", [({}, 1)] * 3), most=3)) == 1


async def test_a_metric_that_fills_two_batches_is_named_in_both():
    points = DataPoints(FakeClock(0), in_delta=False)
    batches = points.batches(report(gauge("a", [({}, 1)] * 2)), 1)
    names = [names_of(batch) async for batch in batches]

    assert names == [["a"], ["a"]]


def names_of(batch: Batch) -> list[str]:
    return [metric.otel.name for metric in batch.metrics]


async def test_the_limit_of_label_sets_holds_for_data_points():
    points = DataPoints(FakeClock(0), in_delta=False)
    families = [counter("c_total", [({"n": str(each)}, each) for each in range(5)])]
    found = [
        point
        async for batch in points.batches(report(*families, limit=3), 100)
        for metric in batch.metrics
        for point in metric.points
    ]
    assert [(dict(point.labels), point.value) for point in found][-1] == ({"otel_metric_overflow": "true"}, 9)
