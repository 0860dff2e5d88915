"""The pages of Operations that are sessions: what an operator types there works, in the order of the page."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.manual_session import ROOT, Session

# Sessions, and the pages whose commands fit the servers that a session leaves.
PAGES = {"first-half-hour.md": ("monitor.md", "deploy.md", "logs.md"), "disk-full.md": (), "harden.md": ()}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A reader, whose servers and programs in the background end with the test."""
    reader = Session(tmp_path)
    yield reader
    reader.close()
    for file in tmp_path.glob("*.pid"):
        with suppress(ProcessLookupError, ValueError):
            os.kill(int(file.read_text()), signal.SIGKILL)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("page", PAGES)
def test_an_operator_can_follow_the_page(page: str, session: Session):
    for each in (page, *PAGES[page]):
        session.read(ROOT / "docs" / "operations" / each)
