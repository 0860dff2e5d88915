"""Files, folders and commands that the pages name exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from docs._ext.manual import PAGES as GENERATED
from docs._ext.proofs import FEATURES, PROMISES, proofs
from rocketbroker.app.mqadmin.cli import SUB_COMMANDS
from tests.support.sources import syntax_tree

ROOT = Path(__file__).resolve().parent.parent.parent
MANUAL = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts]
PAGES = [*sorted(ROOT.glob("*.md")), *MANUAL]
# Pages may leave out the first folders of a path, as in `store/commitlog/commit_log.py`.
PLACES = ("src", "tests", "docs", "bench", "bin", "conf", "requirements")

DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
CRASH_SAFETY = (ROOT / "docs" / "internals" / "crash-safety.md").read_text()
SECTIONS = [
    name
    for name in re.findall(r"^## (.*)", CRASH_SAFETY, re.MULTILINE)
    if name not in {"What is not covered", "Proofs"}
]


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def paths() -> list[str]:
    found = [path for place in PLACES for path in (ROOT / place).rglob("*") if "__pycache__" not in path.parts]
    return [f"/{path.relative_to(ROOT)}" for path in found]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_each_source_file_named_on_a_page_exists(page: Path):
    text = page.read_text()
    # Files that a page has its reader save begin with their name.
    names = set(re.findall(r"`([\w/.-]+\.py)`", text)) - set(re.findall(r"^# ([\w-]+\.py)$", text, re.MULTILINE))

    assert {name for name in names if not any(path.endswith(f"/{name}") for path in paths())} == set()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_each_file_of_the_checkout_named_on_a_page_exists(page: Path):
    words = re.findall(rf"(?<![\w/.-])((?:{'|'.join(PLACES)}|\.ci)/[\w./-]*\w)", page.read_text())

    assert {word for word in words if not (ROOT / word).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_each_test_named_on_a_page_exists(page: Path):
    named = re.findall(r"(tests/[\w/]+\.py)((?:::\w+)+)", page.read_text())

    missing = [path + names for path, names in named if not is_defined(syntax_tree(ROOT / path), names)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_no_page_shows_a_local_folder_of_its_author(page: Path):
    # mqdev makes a folder of its own there, and says so.
    assert [path for path in re.findall(r"/tmp/[\w./-]+", page.read_text()) if not path.startswith("/tmp/mqdev-")] == []


def is_defined(tree: ast.Module, names: str) -> bool:
    """Return true if a source file has a test, as ``::TestClass::test_name`` or ``::test_name``."""
    body = tree.body
    for name in names.removeprefix("::").split("::"):
        found = [one for one in body if isinstance(one, DEFINITIONS) and one.name == name]
        if not found:
            return False
        body = found[0].body
    return True


def test_each_section_of_the_argument_has_its_proofs():
    assert list(PROMISES) == SECTIONS
    assert {proof.section for proof in proofs()} == {*PROMISES, *FEATURES}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_each_sub_command_run_on_a_page_exists(page: Path):
    run = set(re.findall(r"^\$ (?:bin/)?mqadmin (\w+)", page.read_text(), re.MULTILINE))

    assert run - set(SUB_COMMANDS) == set()


def test_each_room_is_described():
    rooms = {path.parent.name for path in (ROOT / "src" / "rocketbroker").glob("*/__init__.py")}
    table = (ROOT / "docs" / "architecture.md").read_text().split("## Rooms")[1].split("import-linter")[0]

    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == rooms


def test_each_page_of_the_manual_is_in_its_table_of_contents():
    """Sphinx finds this too, minutes later."""
    listed = set(re.findall(r"^([\w/*-]+)$", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE))

    names = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in MANUAL} - {"index"}
    assert {name for name in names if name not in listed} == set()


@pytest.mark.parametrize("name", GENERATED)
def test_each_generated_page_is_current(name: str):
    page = ROOT / "docs" / name

    assert page.read_text() == GENERATED[name](), "run: bin/manual"
