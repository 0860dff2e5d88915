"""All generated pages are written by one command."""

import subprocess
import sys
from pathlib import Path

from docs._ext.manual import PAGES

ROOT = Path(__file__).parents[3]


def test_each_page_is_written_below_the_folder(tmp_path: Path):
    for name in PAGES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)

    subprocess.run([sys.executable, "-m", "docs._ext.manual", tmp_path], check=True, cwd=ROOT)

    assert {name: (tmp_path / name).read_text() == render() for name, render in PAGES.items()} == dict.fromkeys(
        PAGES, True
    )
