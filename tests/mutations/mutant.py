"""Put one named fault into a copy of the checkout, and run the test that must fail then.

A fault names the function that holds it and the code that changes, both as syntax. It follows code that moves to
another file or gets another layout, and stops fitting only when the code itself changes.
"""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
# Parts of the checkout that the tests need; the copy leaves out the rest.
COPIED = ("src", "tests", "bench", "pyproject.toml", "conf", "docs", "README.md")
SOURCES = "src/rocketbroker"
LIMIT_S = 900
FAILED = 1  # pytest's exit status when tests ran and some failed

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Mutation(NamedTuple):
    """A fault: within the definition ``where`` the code ``before`` becomes ``after``.

    ``where`` is the end of a dotted name that one definition has, such as ``commit_log.CommitLog.append``. ``before``
    is an expression or statements in a row; ``nth`` chooses among several. An empty ``after`` drops statements.
    ``test`` is the file or the test that must fail.
    """

    name: str
    where: str
    before: str
    after: str
    test: str
    nth: int | None = None


class MutationError(Exception):
    """A mutation does not fit the code, or its test could not be run."""


class Place(NamedTuple):
    """Code to replace: a span of characters of a file, and whether it is statements."""

    path: Path  # below the sources
    begin: int
    end: int
    indent: str | None  # of statements; None for an expression


def find(mutation: Mutation) -> Place:
    """Return the one place that a mutation means.

    Raises:
        MutationError: no definition or several have the name, or the code does not stand there as often as it should.
    """
    found = [entry for name, entry in _definitions().items() if f".{name}".endswith(f".{mutation.where}")]
    if len(found) != 1:
        raise MutationError(f"{mutation.name}: {len(found)} definitions are named {mutation.where}")
    path, definition = found[0]
    before = ast.parse(textwrap.dedent(mutation.before)).body
    runs = [run for run in _runs(definition, len(before), before) if [*map(_dump, run)] == [*map(_dump, before)]]
    if not runs and len(before) == 1 and isinstance(before[0], ast.Expr):
        runs = [[node] for node in ast.walk(definition) if _dump(node) == _dump(before[0].value)]
    if mutation.nth is None and len(runs) != 1:
        raise MutationError(f"{mutation.name}: its code stands {len(runs)} times in {mutation.where} ({path})")
    if (mutation.nth or 0) >= len(runs):
        raise MutationError(f"{mutation.name}: its code stands only {len(runs)} times in {mutation.where} ({path})")
    return _place(path, runs[mutation.nth or 0])


def mutated(mutation: Mutation) -> tuple[Path, str]:
    """Return the file of a mutation, below the sources, and its text with the fault."""
    place = find(mutation)
    text = _text(place.path)
    if place.indent is None:
        after = f"({mutation.after})"
    else:
        after = textwrap.indent(textwrap.dedent(mutation.after).strip() or "pass", place.indent).lstrip()
    return place.path, text[: place.begin] + after + text[place.end :]


def failure_with(mutation: Mutation) -> str:
    """Return the line that says why the test of a mutation fails with it; empty when the test passes.

    Raises:
        MutationError: pytest ran no test, or not to its end.
    """
    path, text = mutated(mutation)
    with tempfile.TemporaryDirectory(prefix="rocketbroker-mutation-") as name:
        folder = Path(name)
        for each in COPIED:
            copy = shutil.copytree if (ROOT / each).is_dir() else shutil.copy2
            copy(ROOT / each, folder / each)
        (folder / SOURCES / path).write_text(text)
        command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutation.test]
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder / "src")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    lines = done.stdout.splitlines()
    if done.returncode not in {0, FAILED} or " error" in lines[-1]:
        raise MutationError(f"{mutation.name}: pytest ended with {done.returncode}\n{done.stdout[-3000:]}")
    return next((line for line in lines if line.startswith("E  ")), "E") if done.returncode else ""


@cache
def _text(path: Path) -> str:
    return (ROOT / SOURCES / path).read_text()


@cache
def _definitions() -> dict[str, tuple[Path, Definition]]:
    """Return each class and function of the sources by its dotted name."""
    found: dict[str, tuple[Path, Definition]] = {}
    for file in sorted((ROOT / SOURCES).rglob("*.py")):
        path = file.relative_to(ROOT / SOURCES)
        module = ".".join(path.with_suffix("").parts)
        found |= {f"{module}.{name}": (path, node) for name, node in _named(ast.parse(_text(path)), "")}
    return found


def _named(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + child.name, child
            yield from _named(child, f"{prefix}{child.name}.")
        else:
            yield from _named(child, prefix)


def _runs(definition: ast.AST, length: int, before: list[ast.stmt]) -> Iterator[list[ast.AST]]:
    """Yield each run of so many statements of one block that begins as ``before`` does."""
    for node in ast.walk(definition):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                starts = (place for place, each in enumerate(block) if isinstance(each, type(before[0])))
                yield from (block[start : start + length] for start in starts)


def _dump(node: ast.AST) -> str:
    """Return the syntax of a node; a name reads alike wherever it is loaded or stored."""
    return ast.dump(node).replace("Store()", "Load()")


def _place(path: Path, nodes: list[ast.AST]) -> Place:
    text = _text(path)
    first, last = nodes[0], nodes[-1]
    assert isinstance(first, ast.stmt | ast.expr)
    assert isinstance(last, ast.stmt | ast.expr)
    begin = _offset(text, first.lineno, first.col_offset)
    end = _offset(text, last.end_lineno or 0, last.end_col_offset or 0)
    return Place(path, begin, end, " " * first.col_offset if isinstance(first, ast.stmt) else None)


def _offset(text: str, line: int, column: int) -> int:
    """Return the character at a line and at a column, which counts bytes."""
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())
