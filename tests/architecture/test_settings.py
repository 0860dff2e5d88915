"""No setting is typed for show: each one is read where it acts, and a hot one is read again after the start."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketbroker.common.config import BrokerConfig, MessageStoreConfig, NamesrvConfig, TransportConfig
from rocketbroker.common.config.fields import ConfigModel, trait_of
from tests.support.sources import syntax_tree

SOURCES = Path(__file__).resolve().parent.parent.parent / "src" / "rocketbroker"
CONFIG = SOURCES / "common" / "config"
MODELS: tuple[type[ConfigModel], ...] = (BrokerConfig, MessageStoreConfig, NamesrvConfig, TransportConfig)
# Names of settings objects, so that a field of a header or a body that is called alike is no reader.
HOLDERS = {"config", "_config", "store_config", "_store_config", "broker", "store", "namesrv", "transport"}


class Read(NamedTuple):
    attribute: str
    function: str


def reads(tree: ast.AST, function: str = "") -> Iterator[Read]:
    """Attributes read from settings, each with the function that it stands in."""
    for node in ast.iter_child_nodes(tree):
        inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        match node:
            case ast.Attribute(value=ast.Name(id=holder) | ast.Attribute(attr=holder)) if holder in HOLDERS:
                yield Read(node.attr, inner)
        yield from reads(node, inner)


def derived() -> dict[str, set[str]]:
    """Properties of the settings and what they are made of."""
    return {
        node.name: {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
        for path in CONFIG.glob("*.py")
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(each) == "property" for each in node.decorator_list)
    }


@pytest.fixture(scope="module")
def readers() -> dict[str, set[str]]:
    """The functions that read each field, directly or through a property."""
    found: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        if CONFIG not in path.parents or path.name == "current_settings.py":
            for read in reads(syntax_tree(path)):
                found.setdefault(read.attribute, set()).add(f"{path.name}:{read.function}")
    # `persist_path` is asked of all settings of a process at once.
    for name, fields in derived().items():
        for field in fields:
            found.setdefault(field, set()).update(found.get(name, set()) | settings_readers(name))
    return found


def settings_readers(name: str) -> set[str]:
    return {path.name for path in SOURCES.rglob("*.py") if f"settings.{name}" in path.read_text()}


@pytest.mark.parametrize("model", MODELS)
def test_every_setting_has_a_reader(model: type[ConfigModel], readers: dict[str, set[str]]):
    unread = {name for name in model.model_fields if not readers.get(name)}

    assert unread == set(), "read it where it acts, or drop it: then giving it is a warning"


@pytest.mark.parametrize("model", MODELS)
def test_every_hot_setting_is_read_after_the_start(model: type[ConfigModel], readers: dict[str, set[str]]):
    once = {
        name
        for name, field in model.model_fields.items()
        if trait_of(field).hot and all(reader.endswith(":__init__") for reader in readers.get(name, ()))
    }

    assert once == set(), "a change at run time has no effect: read it at each use, or do not call it hot"
