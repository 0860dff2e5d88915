"""One place stores into mapped files, so that the crash tests hear of each range that is stored."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sources import syntax_tree

SOURCES = Path(__file__).resolve().parent.parent.parent / "src" / "rocketbroker"
OWNER = "store/logfile/mapped_file.py"
# Makers of writable shared memory, and of those notified of what is stored into it.
MAKERS = {"map_shared": "common/file_system.py", "watcher": OWNER}
# The views of a mapping.
VIEWS = {"buffer", "_writable"}


def stores(tree: ast.Module) -> Iterator[str]:
    """Give the lines that make a mapping or a writable view of one, or store into a view."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Attribute(attr=attr), ctx=ast.Store() | ast.Del()) if attr in VIEWS:
                yield f"line {node.lineno}: stores into .{attr}"
            case ast.Call(func=ast.Attribute(attr="pack_into"), args=[ast.Attribute(attr=attr), *_]) if attr in VIEWS:
                yield f"line {node.lineno}: packs into .{attr}"
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in MAKERS:
                yield name
            case ast.Attribute(attr="_writable"):
                yield f"line {node.lineno}: takes ._writable"


def test_only_the_mapped_file_stores_into_its_mapping():
    found = {
        (path, store)
        for file in SOURCES.rglob("*.py")
        for path in [str(file.relative_to(SOURCES))]
        if path != OWNER
        for store in stores(syntax_tree(file))
        if MAKERS.get(store) != path
    }

    assert found == set(), "store by MappedFile.write or MappedFile.writing"


@pytest.mark.parametrize(
    "source",
    [
        "file.buffer[0:4] = b'1234'",
        "file.buffer[position] ^= 1",
        "ENTRY.pack_into(self.file.buffer, 0, 1)",
        "view = file._writable",
        "map_shared(fd, 4096)",
        "stored = file_system.watcher(fd)",
    ],
)
def test_a_store_past_the_owner_is_found(source: str):
    assert list(stores(ast.parse(source)))
