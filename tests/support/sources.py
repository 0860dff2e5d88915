"""Syntax trees of source files, each parsed once for all tests of a worker that look at it."""

import ast
from functools import cache
from pathlib import Path


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Return the tree of a file; tests share it, so none may change it."""
    return ast.parse(path.read_text())
