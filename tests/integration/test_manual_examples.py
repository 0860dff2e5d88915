"""Every console example of README, Start and How-to runs, and prints what its page shows."""

import shutil
from pathlib import Path

import pytest

from tests.support.manual_session import ROOT, Session, blocks_of

PAGES = [
    ROOT / "README.md",
    *sorted([*(ROOT / "docs" / "start").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")]),
]


# Tool that the examples of a language need; those of Java have a mark of their own.
TOOLS = {"go": "go", "javascript": "node"}


def marked(page: Path) -> object:
    languages = {block.language for block in blocks_of(page)}
    missing = sorted(tool for language, tool in TOOLS.items() if language in languages and not shutil.which(tool))
    marks = [pytest.mark.java] if "java" in languages else []
    marks += [pytest.mark.skip(reason=f"needs {', '.join(missing)}")] if missing else []
    return pytest.param(page, id=f"{page.parent.name}/{page.name}", marks=marks)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [marked(page) for page in PAGES])
def test_a_reader_can_follow_the_page(page: Path, tmp_path: Path):
    session = Session(tmp_path)
    try:
        session.read(page)
    finally:
        session.close()
