"""Loops of a server run by ``TaskOwner.forever``: an unforeseen error must not leave it half dead."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.sources import syntax_tree

SOURCE = Path(__file__).parents[2] / "src" / "rocketbroker"
ROOMS = ["app", "broker", "common", "namesrv", "processor", "store", "transport"]


def endless(tree: ast.Module) -> set[str]:
    """Names of the coroutine functions that loop without end."""
    return {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant)
    }


def started(tree: ast.Module) -> Iterator[str]:
    """Names of the coroutine functions whose coroutines are handed to ``start``."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "start":
            for argument in call.args:
                if isinstance(argument, ast.Call):
                    yield ast.unparse(argument.func).rpartition(".")[2]


def test_no_endless_loop_is_a_plain_task():
    found = [
        f"{path.relative_to(SOURCE)}: {name}"
        for room in ROOMS
        for path in sorted((SOURCE / room).rglob("*.py"))
        if path != SOURCE / "common" / "lifecycle.py"
        for tree in [syntax_tree(path)]
        for name in set(started(tree)) & endless(tree)
    ]
    assert found == []


def test_a_plain_task_would_be_found():
    tree = ast.parse(
        "async def _run(self):\n  while True:\n    await x()\ndef go(self):\n  self._t.start(self._run(), 'run')"
    )
    assert set(started(tree)) & endless(tree) == {"_run"}
