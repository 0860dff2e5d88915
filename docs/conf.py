"""Sphinx settings of the manual; `just docs` builds it with every warning an error."""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

project = "rocketbroker"
author = "the rocketbroker authors"
copyright = "2026, the rocketbroker authors"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # names in signatures, most of them of other packages
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "rocketbroker"

# Ranges of options: signatures show the type, the text beside them the range.
_RANGE = re.compile(r"(?:~?typing\.)?Annotated\[([^,]+), msgspec\.Meta\((?:'[^']*'|\"[^\"]*\"|[^()'\"])*\)\]")


def _plain_signature(*event: Any) -> tuple[str, str | None] | None:
    *_, signature, returned = event
    return (_RANGE.sub(r"\1", signature), returned) if signature else None


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.connect("autodoc-process-signature", _plain_signature)
