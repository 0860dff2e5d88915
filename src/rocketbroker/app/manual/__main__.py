"""Write every generated page below ``docs/`` of the current folder, or below the folder given."""

import sys
from pathlib import Path

from rocketbroker.app.manual.pages import PAGES

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    for name, render in PAGES.items():
        (folder / name).write_text(render(), encoding="utf-8")
