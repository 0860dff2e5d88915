"""The text format, in slices."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from rocketbroker.common.histogram import Histogram
from rocketbroker.metrics.exposition import SLICE, Family, Samples, counter, gauge, histogram, write


async def page(*families: Family, common: dict[str, str] | None = None, limit: int = 50_000) -> str:
    return b"".join([each async for each in write(families, common or {}, limit)]).decode()


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
    slices = [each async for each in write([histogram("h", topics, "Help")], {}, 50_000)]
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
