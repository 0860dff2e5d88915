"""The README sells in two languages: both say the same, with figures and commands that hold."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.manual_session import ROOT, blocks_of

ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
PERFORMANCE = (ROOT / "docs" / "operations" / "performance.md").read_text()
FOLDERS = ("start", "how-to", "coming-from-rocketmq", "reference", "operations", "internals")
PICTURE_MOST_BYTES = 200_000
EXAMPLE_LINES = 10
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


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


COMMIT = re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{7,40}\b")
NUMBER = re.compile(r"(?<![\w.,-])\d+(?:[.,]\d+)*(?!\w)")


def measured(page: str) -> list[tuple[set[str], set[str]]]:
    """Return commits and numbers of each paragraph, list item and table.

    One that names no commit was measured on that of the nearest one above it in the same section.
    """
    found: list[tuple[set[str], set[str]]] = []
    for section in re.split(r"^##+ .*$", page, flags=re.MULTILINE):
        commits: set[str] = set()
        for block in re.split(r"\n\n|\n(?=- )", section):
            commits = set(COMMIT.findall(block)) or commits
            found.append((commits, set(NUMBER.findall(COMMIT.sub("", block)))))
    return found


def test_each_figure_is_on_the_page_of_performance_with_its_commit():
    rows = figures(ENGLISH)
    blocks = measured(PERFORMANCE)

    assert rows
    assert [
        row
        for commit, *numbers in rows
        if not any(commit in commits and set(numbers) <= there for commits, there in blocks)
        for row in [(commit, numbers)]
    ] == []


PAGE = """
## Sends

Commit abc1234, three rounds:

| load | ratio |
|---|---:|
| sync | 0.34 |

- The day before, commit def5678 had 1.38 and 0.48.

## Pulls

0.5 of all.
"""


def test_a_figure_belongs_to_the_commit_that_stands_with_it():
    assert [(commits, numbers) for commits, numbers in measured(PAGE) if numbers] == [
        ({"abc1234"}, {"0.34"}),
        ({"def5678"}, {"1.38", "0.48"}),
        (set(), {"0.5"}),
    ]


@pytest.mark.parametrize("page", [ENGLISH, CHINESE], ids=lambda page: page.name)
def test_version_and_status_are_those_of_the_package(page: Path):
    [status] = [each for each in PROJECT["classifiers"] if each.startswith("Development Status")]

    assert PROJECT["version"] in page.read_text()
    assert status.rpartition(" ")[2].lower() in page.read_text().split("## ")[0].lower()


@pytest.mark.parametrize("page", [ENGLISH, CHINESE], ids=lambda page: page.name)
def test_each_command_is_installed_by_what_stands_before_it(page: Path):
    """mqanalytics needs the extra of its name."""
    text = page.read_text()

    assert "git clone" in text.split("$ pip install .\n")[0]
    assert "$ pip install '.[analytics]'\n" in text.split("$ mqanalytics")[0]
    assert "analytics" in PROJECT["optional-dependencies"]


def test_the_example_receives_what_it_sends():
    [example] = [block.text for block in blocks_of(ENGLISH) if block.language == "python"]

    assert "PushConsumer" in example
    assert "async for message in consumer" in example


def test_clients_are_called_by_the_protocol_that_works():
    for page in (ENGLISH, ROOT / "docs" / "index.md", ROOT / "CHANGELOG.md"):
        text = " ".join(page.read_text().split())
        assert re.findall(r"[Oo]fficial (?:RocketMQ |Java )?clients?\b(?! 5\.5\.0 under)", text) == [], page.name
    assert "官方 RocketMQ 客户端" not in CHINESE.read_text()


def reachable(start: Path) -> set[Path]:
    """Return the pages that links lead to, from page to page."""
    found: set[Path] = set()
    waiting = [start]
    while waiting:
        page = waiting.pop()
        if page not in found and page.suffix == ".md" and page.is_file():
            found.add(page)
            targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
            waiting += [(page.parent / target).resolve() for target in targets if "://" not in target]
    return found


def test_links_lead_to_each_page():
    pages = {path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts}

    assert pages - reachable(ENGLISH) == set()


def test_the_readme_names_each_page_of_start_and_how_to():
    pages = {path.relative_to(ROOT) for part in ("start", "how-to") for path in (ROOT / "docs" / part).glob("*.md")}

    assert pages - {Path(target) for target in links(ENGLISH)} == set()


def test_the_example_is_ten_lines_long():
    (example,) = [block.text for block in blocks_of(ENGLISH) if block.language == "python"]

    assert len([line for line in example.splitlines() if line and not line.startswith("#")]) == EXAMPLE_LINES


def test_the_picture_is_small():
    (picture,) = re.findall(r"!\[.*\]\((.+)\)", ENGLISH.read_text())

    assert 0 < (ROOT / picture).stat().st_size < PICTURE_MOST_BYTES


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_readme_leads_into_each_folder(folder: str):
    assert any(target.startswith(f"docs/{folder}/") for target in links(ENGLISH))
