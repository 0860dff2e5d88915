"""Output of the commands. Texts that clients chose reach a terminal escaped.

Clients choose their ids, and the tags, keys and bodies of messages. An escape sequence in one of them would hide lines,
rename the window, or type for the reader. So all that the commands print goes through this file; a test holds them to
it.
"""

import json
import re
import sys
from typing import Any

import msgspec

# Controls that JSON leaves as they are: DEL, the 8-bit ones (0x9B begins a sequence), and those that turn text around.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escaped(text: str, keep: str = "") -> str:
    """Return a text with escapes such as ``\\x1b`` for characters that are not printable, except those to keep."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else ascii(char)[1:-1] for char in text)


def say(*texts: object, err: bool = False) -> None:
    """Print texts with a blank between them, to stdout or stderr; their line feeds and tabs are kept."""
    print(escaped(" ".join(map(str, texts)), "\n\t"), file=sys.stderr if err else sys.stdout)


def json_text(data: Any, indent: int | None = None) -> str:
    """Return a JSON value, with escapes for all control characters."""
    encoded = msgspec.json.encode(data)
    text = (encoded if indent is None else msgspec.json.format(encoded, indent=indent)).decode()
    return _UNSAFE_IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text)


def say_json(data: Any, indent: int | None = None) -> None:
    """Print one JSON value."""
    print(json_text(data, indent))
