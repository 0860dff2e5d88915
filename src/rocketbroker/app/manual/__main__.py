"""Write all generated pages to ``docs/`` in the current folder, or to the given folder."""

import sys
from pathlib import Path

from rocketbroker.app.manual.pages import PAGES

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    for name, render in PAGES.items():
        (folder / name).write_text(render(), encoding="utf-8")
