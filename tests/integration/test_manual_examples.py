"""Every console example of README, Start and How-to runs, and prints what its page shows."""

from pathlib import Path

import pytest

from tests.support.manual_session import ROOT, Session, blocks_of

PAGES = [
    ROOT / "README.md",
    *sorted([*(ROOT / "docs" / "start").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")]),
]


def marked(page: Path) -> object:
    is_java = any(block.language == "java" for block in blocks_of(page))
    return pytest.param(page, id=f"{page.parent.name}/{page.name}", marks=[pytest.mark.java] if is_java else [])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [marked(page) for page in PAGES])
def test_a_reader_can_follow_the_page(page: Path, tmp_path: Path):
    session = Session(tmp_path)
    try:
        session.read(page)
    finally:
        session.close()
