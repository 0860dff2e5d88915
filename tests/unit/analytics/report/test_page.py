import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rocketbroker.analytics.report import facts
from rocketbroker.analytics.report.page import html_page, lead, write_report
from rocketbroker.analytics.report.sections import sections, tiles
from rocketbroker.common.errors import StoreError
from tests.support.report_facts import no_facts, store_facts, table

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\"'"


class Page(HTMLParser):
    """The tags, texts and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        (self.scripts if self._open == "script" else self.texts).append(data)


def page(evil: bool = False) -> Page:
    found = store_facts()
    if evil:
        found = store_facts(
            stores=((EVIL, EVIL),),
            asked=EVIL,
            queues=table(facts.QUEUES, (EVIL, EVIL, 0, 30, 3000, 30), (EVIL, EVIL, 1, 10, 1000, 10)),
            traffic=table(facts.TRAFFIC, (EVIL, 0, 30, 3000), ("b", 0, 1, 1)),
            keys=table(facts.KEYS, (EVIL, EVIL, 20)),
            dead_letters=table(facts.DEAD_LETTERS, (EVIL, EVIL, 2, 0, 1)),
        )
    return Page(html_page("Title", found.asked, tiles(found), sections(found)))


def figures(found: Page) -> dict[str, dict[str, object]]:
    script = next(each for each in found.scripts if "const FIGURES" in each)
    parsed: dict[str, dict[str, object]] = json.loads(script.split("const FIGURES = ")[1].rstrip(";"))
    return parsed


def test_each_section_has_its_figure_and_its_table_beside_it():
    found = page()
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert {each for each in ids if each and each.startswith("figure-")} == {
        f"figure-{name}" for name in figures(found)
    }
    assert len(figures(found)) == 9
    assert sum(tag == "table" for tag, _ in found.tags) == 10
    assert "2026-11-21 09:57:00" in found.texts


def test_the_page_fetches_nothing_and_forbids_to():
    found = page()
    named = [value for _, attributes in found.tags for value in attributes.values() if value]
    assert not [each for each in named if "://" in each]
    assert not [tag for tag, attributes in found.tags if "src" in attributes or tag == "link"]
    (policy,) = [attributes for tag, attributes in found.tags if "http-equiv" in attributes]
    assert "default-src 'none'" in str(policy["content"])
    assert not [each for each in found.scripts if "plotly.js v" not in each and "://" in each]


@pytest.mark.parametrize("part", ["tags", "scripts"])
def test_names_that_others_gave_stay_text(part: str):
    harmless, evil = page(), page(evil=True)
    if part == "tags":
        assert {tag for tag, _ in evil.tags} == {tag for tag, _ in harmless.tags}
        assert EVIL in evil.texts
        assert not [name for _, attributes in evil.tags for name in attributes if name.startswith("on")]
    else:
        assert len(evil.scripts) == len(harmless.scripts)
        names = re.findall(r'"name": "([^"]*)"', json.dumps(figures(evil)))
        assert names
        assert not [name for name in names if "<" in name], "plotly reads tags"


def test_an_empty_store_has_a_page_that_says_so():
    found = Page(html_page("Title", "", tiles(no_facts()), sections(no_facts())))
    assert figures(found) == {}
    assert "No message is stored." in found.texts
    assert "All of the log is readable." in found.texts


@pytest.mark.long
def test_page_and_pictures_are_written(tmp_path: Path):
    output = tmp_path / "report.html"
    output.write_text("old")
    written = write_report(store_facts(), output, tmp_path / "png")
    assert written[0] == output
    assert output.read_text().startswith("<!doctype html>")
    assert output.stat().st_mode & 0o777 == 0o644
    assert sorted(written[1:]) == sorted((tmp_path / "png").iterdir())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_without_a_folder_for_them_there_are_no_pictures(tmp_path: Path):
    assert write_report(store_facts(), tmp_path / "report.html") == [tmp_path / "report.html"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path):
    with pytest.raises(StoreError, match=r"cannot write .*missing.*: No such file or directory"):
        write_report(store_facts(), tmp_path / "missing" / "report.html")


def test_the_lead_says_which_stores_and_which_time():
    assert lead(store_facts()) == "a: 2026-11-21 09:57:00 to 2026-11-21 10:02:00 UTC"
    assert lead(store_facts(asked="only topic orders")).endswith("UTC; only topic orders")
    assert lead(no_facts()) == "a: no messages"
