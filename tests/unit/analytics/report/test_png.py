from pathlib import Path

import pytest

from rocketbroker.analytics.report import facts
from rocketbroker.analytics.report.png import write_pngs
from rocketbroker.analytics.report.sections import sections
from tests.support.report_facts import no_facts, store_facts, table


def size_of(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def test_each_figure_is_a_picture(tmp_path: Path):
    paths = write_pngs(sections(store_facts()), tmp_path / "new")
    assert {path.stem for path in paths} == {
        "traffic", "sizes", "queues", "keys", "delays", "retries", "dead-letters", "lag", "corrupt",
    }  # fmt: skip
    for path in paths:
        width, height = size_of(path)
        assert width == 1200
        assert 150 < height < 1200


def test_many_bars_make_a_higher_picture(tmp_path: Path):
    keys = table(facts.KEYS, *(("orders", f"k{number}", 9) for number in range(20)))
    (few,) = write_pngs([each for each in sections(store_facts()) if each.name == "keys"], tmp_path / "few")
    (many,) = write_pngs([each for each in sections(store_facts(keys=keys)) if each.name == "keys"], tmp_path / "many")
    assert size_of(many)[1] > size_of(few)[1]


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["$x^2$", "_hidden", r"\frac{1}{2}", "Bestätigungen", "x" * 300, "tab\tand\x00null", ""]
)
def test_any_name_is_drawn(tmp_path: Path, name: str):
    found = store_facts(
        queues=table(facts.QUEUES, ("a", name, 0, 30, 3000, 30), ("a", name, 1, 1, 1, 1), ("a", "b", 0, 3, 1, 1)),
        traffic=table(facts.TRAFFIC, (name, 0, 30, 3000), ("b", 60_000, 3, 1)),
        keys=table(facts.KEYS, (name, name, 20), (name, name[:200], 20)),
    )
    with_names = [each for each in sections(found) if each.name in {"queues", "traffic", "keys"}]
    assert len(write_pngs(with_names, tmp_path)) == 3


def test_an_empty_store_has_no_pictures(tmp_path: Path):
    assert write_pngs(sections(no_facts()), tmp_path / "new") == []
