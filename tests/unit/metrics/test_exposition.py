"""The text format, in slices."""

import asyncio
import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from rocketbroker.common.histogram import Histogram
from rocketbroker.metrics.exposition import write
from rocketbroker.metrics.family import SLICE, Block, Family, Report, Samples, counter, gauge, histogram


def report(*families: Family, common: dict[str, str] | None = None, limit: int = 50_000) -> Report:
    return Report(common or {}, limit, [Block("", families)])


async def page(*families: Family, common: dict[str, str] | None = None, limit: int = 50_000) -> str:
    return b"".join([each async for each in write(report(*families, common=common, limit=limit))]).decode()


class Registry:
    """A registry of prometheus-client with some metrics."""

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> tuple[Metric, ...]:
        return self._metrics


LABELS = st.dictionaries(
    st.sampled_from(["topic", "consumer_group", "le_not", "cluster"]),
    st.text(st.characters(codec="utf-8"), max_size=20),
    max_size=3,
)
VALUES = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False)


@given(LABELS, VALUES, st.text(st.characters(codec="utf-8"), max_size=30))
def test_a_line_means_what_prometheus_client_writes(labels: dict[str, str], value: float, text: str):
    metric = Metric("g", text, "gauge")
    metric.samples = [Sample("g", {"cluster": "C", **labels}, value)]
    theirs = generate_latest(Registry(metric)).decode()
    ours = asyncio.run(page(gauge("g", [(labels, value)], text), common={"cluster": "C"}))

    assert list(text_string_to_metric_families(ours)) == list(text_string_to_metric_families(theirs))


@given(LABELS, st.lists(st.floats(0, 1e9), max_size=5))
def test_a_distribution_means_what_prometheus_client_writes(labels: dict[str, str], values: list[float]):
    times, bounds = Histogram((1, 10, 1_000_000)), (1, 10, 1_000_000, math.inf)
    for each in values:
        times.add(each)
    metric = Metric("h", "Help", "histogram")
    metric.samples = [
        *(
            Sample(
                "h_bucket",
                {**labels, "le": "+Inf" if bound == math.inf else str(float(bound))},
                sum(each <= bound for each in values),
            )
            for bound in bounds
        ),
        Sample("h_count", labels, len(values)),
        Sample("h_sum", labels, times.sum),
    ]
    theirs = generate_latest(Registry(metric)).decode()
    ours = asyncio.run(page(histogram("h", [(labels, times)], "Help")))

    assert list(text_string_to_metric_families(ours)) == list(text_string_to_metric_families(theirs))


async def test_a_scope_is_a_label_and_has_the_target():
    families = [gauge("g", [({}, 1)])]
    slices = [each async for each in write(Report({}, 10, [Block("broker-meter", families)]))]
    text = b"".join(slices).decode()

    assert 'g{otel_scope_name="broker-meter"} 1.0' in text
    assert text.endswith("# TYPE target_info gauge\ntarget_info 1\n")
    assert "target_info" not in await page(*families)


async def test_half_a_surrogate_pair_is_replaced():
    assert 'topic="a?b"' in await page(gauge("g", [({"topic": "a\ud800b"}, 1)]))


async def test_a_page_is_read_by_prometheus_own_parser():
    times = Histogram((1, 10))
    for value in (0.5, 5, 50):
        times.add(value)
    text = await page(
        gauge("g", [({"a": "1"}, 6)]),
        counter("c_total", [({}, 3)]),
        histogram("h", [({"a": "1"}, times)], "Help of h"),
        common={"cluster": "C"},
    )
    families = {each.name: each for each in text_string_to_metric_families(text)}

    assert {name: each.type for name, each in families.items()} == {"g": "gauge", "c": "counter", "h": "histogram"}
    assert [(each.name, each.labels, each.value) for each in families["c"].samples] == [
        ("c_total", {"cluster": "C"}, 3)
    ]
    assert families["h"].documentation == "Help of h"
    values = {(each.name, each.labels.get("le")): each.value for each in families["h"].samples}
    assert values == {
        ("h_bucket", "1.0"): 1,
        ("h_bucket", "10.0"): 2,
        ("h_bucket", "+Inf"): 3,
        ("h_count", None): 3,
        ("h_sum", None): 55.5,
    }


async def test_quotes_and_line_ends_in_a_label_survive():
    value = 'a "quoted"\nname\\'
    text = await page(gauge("g", [({"topic": value}, 1)]))

    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"topic": value}
    assert len(text.splitlines()) == 3


async def test_labels_of_a_metric_win():
    assert 'topic="own"' in await page(gauge("g", [({"topic": "own"}, 1)]), common={"topic": "given"})


async def test_a_metric_without_samples_is_not_printed():
    assert await page(gauge("g", []), counter("c_total", [None])) == ""


async def test_ten_thousand_topics_are_written_in_slices_and_others_run_between_them():
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    sizes = Histogram((1, 2, 3))
    topics: Samples = [({"topic": f"T{number}"}, sizes) for number in range(10_000)]
    running = asyncio.create_task(others())
    slices = [each async for each in write(report(histogram("h", topics, "Help")))]
    running.cancel()

    lines = [each.count(b"\n") for each in slices]
    assert sum(lines) == 2 + 10_000 * 6
    assert max(lines) <= SLICE + 6
    assert turns >= len(slices)
    assert sum(each.count(b"# TYPE") for each in slices) == 1


async def test_work_without_samples_is_sliced_as_well():
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    assert await page(gauge("g", (None for _ in range(10 * SLICE)))) == ""
    running.cancel()

    assert turns >= 10


async def test_label_sets_beyond_the_limit_are_one_sample():
    times = Histogram((1,))
    times.add(5)
    numbers: Samples = [({"topic": f"T{number}"}, number) for number in range(5)]
    text = await page(
        counter("c_total", numbers),
        gauge("g", numbers),
        histogram("h", [({"topic": f"T{number}"}, times) for number in range(5)], "Help"),
        limit=3,
    )
    found = {each.name: each.samples for each in text_string_to_metric_families(text)}

    assert [each.value for each in found["c"]] == [0, 1, 2 + 3 + 4]
    assert found["c"][-1].labels == {"otel_metric_overflow": "true"}
    assert found["g"][-1].value == 4
    assert [each.value for each in found["h"] if each.name == "h_count"] == [1, 1, 3]


async def test_the_limit_itself_is_no_overflow():
    text = await page(gauge("g", [({"topic": "A"}, 1), ({"topic": "B"}, 2)]), limit=3)

    assert "overflow" not in text
