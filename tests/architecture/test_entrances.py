"""Statements about the whole package in one place hold for all of it: errors and commands."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from rocketbroker.client.core import errors as client_errors
from rocketbroker.common import errors
from tests.support.sources import syntax_tree

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "src"
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


def test_every_error_is_in_the_tree():
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.ClassDef)
    }
    known = {"RocketBrokerError"}
    while more := {name for name, of in bases.items() if of & known} - known:
        known |= more
    words = set(f"{errors.__doc__} {client_errors.__doc__}".split())

    assert len(known) > 20
    assert known - words == set()


def test_each_error_of_another_module_is_where_the_tree_says():
    found = re.findall(r"(\w+Error) .*\(([a-z_.]+\.[a-z_]+)\)$", errors.__doc__ or "", re.MULTILINE)
    sources = {name: SOURCES / "rocketbroker" / (module.replace(".", "/") + ".py") for name, module in found}

    assert len(found) > 5
    assert {name for name, path in sources.items() if f"class {name}(" not in path.read_text()} == set()


@pytest.mark.parametrize("target", SCRIPTS.values(), ids=SCRIPTS)
def test_every_command_also_runs_as_a_module(target: str):
    module = SOURCES / (target.partition(":")[0].replace(".", "/") + ".py")
    last = syntax_tree(module).body[-1]

    assert ast.unparse(last) == "if __name__ == '__main__':\n    main()"
