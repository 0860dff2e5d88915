"""The page about monitoring explains each metric, also those that a server has only with some settings."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "operations" / "monitor.md").read_text()
NAME = re.compile(r"(?:rocketmq|rocketbroker)_\w+")


def named_in_code() -> set[str]:
    trees = [ast.parse(file.read_text()) for file in (ROOT / "src" / "rocketbroker" / "metrics").glob("*.py")]
    texts = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and NAME.fullmatch(text)}


def rows_on_page() -> list[str]:
    """Return the first cells of the rows that have a meaning and advice."""
    tables = PAGE.split("| metric | meaning | worry when, and do |\n|---|---|---|\n")[1:]
    rows = [row.strip("| ").split(" | ") for table in tables for row in table.partition("\n\n")[0].splitlines()]
    return [row[0] for row in rows if len(row) == 3 and all(row)]


ROWS = rows_on_page()


@pytest.mark.parametrize("name", sorted(named_in_code()))
def test_each_metric_has_a_meaning_and_advice(name: str):
    assert [row for row in ROWS if f"`{name}`" in row] != []
