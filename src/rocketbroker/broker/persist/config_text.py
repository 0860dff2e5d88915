"""Builds the text of ``config/*.json`` from pieces, where encoding the whole table each time would take too long.

The shape is that of ``fastjson.dumps(table, indent=TAB)``:

    {
        "field":{
            "name":value,
            ...
        },
        ...
    }
"""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from rocketbroker.codec.remoting import fastjson

V = TypeVar("V", bound=msgspec.Struct)


def text_of(value: str) -> str:
    """A JSON string."""
    return msgspec.json.encode(value).decode()


def struct_text(value: msgspec.Struct, depth: int) -> str:
    """A struct that stands ``depth`` levels down."""
    # A line break is always one of the layout: in strings it is escaped.
    return fastjson.dumps(value, indent="\t").decode().replace("\n", "\n" + "\t" * depth)


def object_text(lines: Iterable[str], depth: int) -> str:
    """An object whose fields (or an inner one whose entries) are ``lines``, already indented."""
    text = ",\n".join(lines)
    closing = "\t" * depth + "}"
    return f"{{\n{text}\n{closing}" if text else "{}"


def file_text(**fields: str) -> bytes:
    """The file: an object with these fields, by alphabet."""
    return object_text((f'\t"{name}":{text}' for name, text in sorted(fields.items())), 0).encode()


class EntryTexts(Generic[V]):
    """Texts of the entries of a table; each is renewed when its entry is replaced, which never changes in place."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[V, str]] = {}

    def object_text(self, table: Mapping[str, V]) -> str:
        """The object ``table`` as a field of a file."""
        known, texts = self._texts, {}
        for name, value in table.items():
            found = known.get(name)
            if found is None or found[0] is not value:
                found = value, f"\t\t{text_of(name)}:{struct_text(value, 2)}"
            texts[name] = found
        self._texts = texts
        return object_text([text for _, text in texts.values()], 1)
