"""Sphinx settings of the manual; `just docs` builds it with every warning an error."""

project = "rocketbroker"
author = "the rocketbroker authors"
copyright = "2026, the rocketbroker authors"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "rocketbroker"
