"""The README sells in two languages: both say the same, with figures and commands that hold."""

import re
from pathlib import Path

import pytest

from tests.support.manual_session import ROOT, blocks_of

ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
PERFORMANCE = (ROOT / "docs" / "operations" / "performance.md").read_text()
FOLDERS = ("start", "how-to", "coming-from-rocketmq", "reference", "operations", "internals")
PICTURE_MOST_BYTES = 200_000
EXAMPLE_LINES = 8


def links(page: Path) -> list[str]:
    """Return where a page leads to, but for the README in the other language."""
    found = re.findall(r"\]\(([^)]+)\)", page.read_text())
    return [target for target in found if not target.startswith("README")]


def headings(page: Path) -> list[str]:
    return re.findall(r"^(#+) ", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)


def figures(page: Path) -> list[tuple[str, ...]]:
    """Return commit and numbers of each measured figure."""
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([0-9a-f]{7,}) \|$", page.read_text(), re.MULTILINE)
    return [(commit, *re.findall(r"\d+(?:[.,]\d+)*", measured)) for measured, commit in rows]


def test_both_have_the_same_sections():
    assert headings(ENGLISH) == headings(CHINESE)


def test_both_have_the_same_commands_and_code():
    assert blocks_of(ENGLISH) == blocks_of(CHINESE)


def test_both_lead_to_the_same_pages():
    assert links(ENGLISH) == links(CHINESE)


def test_both_have_the_same_figures():
    assert figures(ENGLISH) == figures(CHINESE)


def test_each_figure_is_on_the_page_of_performance():
    numbers = [number for row in figures(ENGLISH) for number in row]

    assert numbers
    assert [number for number in numbers if number not in PERFORMANCE] == []


def test_the_example_is_eight_lines_long():
    (example,) = [block.text for block in blocks_of(ENGLISH) if block.language == "python"]

    assert len([line for line in example.splitlines() if line and not line.startswith("#")]) == EXAMPLE_LINES


def test_the_picture_is_small():
    (picture,) = re.findall(r"!\[.*\]\((.+)\)", ENGLISH.read_text())

    assert 0 < (ROOT / picture).stat().st_size < PICTURE_MOST_BYTES


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_readme_leads_into_each_folder(folder: str):
    assert any(target.startswith(f"docs/{folder}/") for target in links(ENGLISH))
