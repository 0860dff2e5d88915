"""Text of ``config/*.json`` built from pieces, where encoding the whole table each time would take too long.

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
    """Return a value as a JSON string."""
    return msgspec.json.encode(value).decode()


def struct_text(value: msgspec.Struct, depth: int) -> str:
    """Return the text of a struct, indented for ``depth`` levels."""
    # Every line break is layout: in strings they are escaped.
    return fastjson.dumps(value, indent="\t").decode().replace("\n", "\n" + "\t" * depth)


def object_text(lines: Iterable[str], depth: int) -> str:
    """Return the text of an object whose fields are ``lines``, already indented."""
    text = ",\n".join(lines)
    closing = "\t" * depth + "}"
    return f"{{\n{text}\n{closing}" if text else "{}"


def file_text(**fields: str) -> bytes:
    """Return the content of a file: an object with these fields in alphabetical order."""
    return object_text((f'\t"{name}":{text}' for name, text in sorted(fields.items())), 0).encode()


class EntryTexts(Generic[V]):
    """Cached texts of table entries, renewed when an entry is replaced; entries never change in place."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[V, str]] = {}

    def object_text(self, table: Mapping[str, V]) -> str:
        """Return the text of ``table`` as a field of a file."""
        known, texts = self._texts, {}
        for name, value in table.items():
            found = known.get(name)
            if found is None or found[0] is not value:
                found = value, f"\t\t{text_of(name)}:{struct_text(value, 2)}"
            texts[name] = found
        self._texts = texts
        return object_text([text for _, text in texts.values()], 1)
