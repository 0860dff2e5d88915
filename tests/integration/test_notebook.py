"""The notebook of the manual runs, and prints what it shows."""

import json
from pathlib import Path

import pytest

from tests.support.mixed_store import MixedStore
from tests.support.notebooks import code_cells, printed_by_cells, shown

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(600)]

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "analytics-tour.ipynb"
MESSAGES = 20_000  # as the notebook says


@pytest.mark.usefixtures("no_session")
def test_the_notebook_prints_what_it_shows(tmp_path: Path) -> None:
    MixedStore(tmp_path / "store", MESSAGES, mapped_file_size_commit_log=64 << 20).make()
    notebook = json.loads(NOTEBOOK.read_text())
    assert f"--messages {MESSAGES}" in "".join(notebook["cells"][0]["source"])
    printed = printed_by_cells(notebook, tmp_path)
    assert [shown(cell) for cell in code_cells(notebook)] == printed
    assert any(printed)
    assert (tmp_path / "report.html").exists()
