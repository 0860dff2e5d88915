"""Folders of unit tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.memory_folder import memory_folder


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder in memory for tests marked so, if there is room."""
    if not request.node.get_closest_marker("in_memory"):
        yield tmp_path
        return
    with memory_folder(tmp_path) as folder:
        yield folder
