"""JSON of RocketMQ's bodies and config files, as fastjson writes it (RemotingSerializable).

    value  := standard JSON, except for the keys of objects:
    object := '{' [ key ':' value (',' key ':' value)* ] '}'
    key    := string | int (a map with integer keys) | object (a map with object keys)

Integer keys become ``int``, object keys :class:`ObjectKey`. A map whose integer keys were quoted, as newer brokers do
for some clients, keeps them as ``str``; a caller that may receive both applies ``int``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from math import isfinite
from typing import Any, Final

import msgspec

from rocketbroker.common.errors import CodecError

#: The largest frame is 16 MiB, and so is the largest body.
MAX_SIZE: Final = 16 << 20
#: RocketMQ nests five or six levels deep.
MAX_DEPTH: Final = 128

# Possessive quantifiers: an unterminated string fails at once instead of being tried in every split.
_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*+(?:
        (?P<mark>[\[\]{},:])
      | (?P<string>"(?:[^"\\]++|\\.)*+")
      | (?P<float>-?[0-9]{1,400}+(?:\.[0-9]{1,400}+(?:[eE][-+]?[0-9]{1,4}+)?|[eE][-+]?[0-9]{1,4}+))
      | (?P<int>-?[0-9]{1,40}+)
      | (?P<word>true|false|null)
    )""",
    re.VERBOSE | re.DOTALL,
)
_SPACE: Final = re.compile(r"[ \t\r\n]*+")
_WORDS: Final = {"true": True, "false": False, "null": None}


class ObjectKey(tuple[tuple[str, Any], ...]):
    """JSON object as the key of a map: pairs of name and value in their order.

    Java writes the fields of an object in alphabetical order, as :meth:`of` does. Nested lists are tuples and nested
    objects are keys of this kind, so that the key can be hashed.
    """

    __slots__ = ()

    @classmethod
    def of(cls, **fields: Any) -> ObjectKey:
        """Return the key with these fields, sorted by name."""
        return cls((name, _hashable(value)) for name, value in sorted(fields.items()))

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        return dict(self)


def loads(buffer: bytes | bytearray | memoryview, *, max_size: int = MAX_SIZE) -> Any:
    """Return the one value in ``buffer``; :class:`CodecError` for anything else, or more than ``max_size`` bytes."""
    if len(buffer) > max_size:
        raise CodecError(f"JSON of {len(buffer):,} bytes exceeds the limit of {max_size:,}")
    try:
        return msgspec.json.decode(buffer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return loads_lenient(buffer)


def dumps(value: Any, *, indent: str = "") -> bytes:
    """Return ``value`` as fastjson writes it: compact, or pretty with ``indent`` (a TAB in RocketMQ's files) per level.

    Dicts may have str, int, :class:`ObjectKey` or ``msgspec.Struct`` keys. Lists, tuples, structs (fields in
    alphabetical order), enums (by name) and plain values are accepted. Entries that are ``None`` are left out, as in
    RocketMQ.
    """
    out: list[str] = []
    _Writer(out, indent).write(value, 0)
    return "".join(out).encode("utf-8", "replace")


def loads_lenient(buffer: bytes | bytearray | memoryview) -> Any:
    """Decode a value token by token: slower than ``loads``, but other threads can run meanwhile.

    Raises:
        CodecError: It is not exactly one value.
    """
    try:
        text = str(buffer, "utf-8")
    except UnicodeDecodeError as error:
        raise CodecError(f"JSON is not UTF-8: {error.reason} at byte {error.start}") from error
    reader = _Reader(text)
    value = reader.value(*reader.token(), 0)
    reader.end()
    return value


class _Reader:
    """Reader of one value from ``text``, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def token(self) -> tuple[str, str]:
        """Return kind and text of the next token."""
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._error("expected a value, a key or one of []{},:")
        self._at = match.end()
        kind = match.lastgroup or ""
        return kind, match[kind]

    def value(self, kind: str, text: str, depth: int) -> Any:
        """Return the value that starts with this token."""
        if kind == "string":
            return self._string(text)
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
        if kind == "word":
            return _WORDS[text]
        if text == "{":
            return dict(self._pairs(depth + 1))
        if text == "[":
            return self._items(depth + 1)
        raise self._error(f"expected a value instead of {text!r}")

    def end(self) -> None:
        """Raise :class:`CodecError` unless only blanks are left."""
        at = _SPACE.match(self._text, self._at)
        if at is not None and at.end() != len(self._text):
            raise self._error("expected the end")

    def _items(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self._check_depth(depth)
        kind, text = self.token()
        if text == "]" and kind == "mark":
            return items
        while True:
            items.append(self.value(kind, text, depth))
            if self._mark(",]") == "]":
                return items
            kind, text = self.token()

    def _pairs(self, depth: int) -> list[tuple[Any, Any]]:
        pairs: list[tuple[Any, Any]] = []
        self._check_depth(depth)
        kind, text = self.token()
        if text == "}" and kind == "mark":
            return pairs
        while True:
            key = self._key(kind, text, depth)
            self._mark(":")
            pairs.append((key, self.value(*self.token(), depth)))
            if self._mark(",}") == "}":
                return pairs
            kind, text = self.token()

    def _key(self, kind: str, text: str, depth: int) -> str | int | ObjectKey:
        if kind == "string":
            return self._string(text)
        if kind == "int":
            return int(text)
        if text == "{":
            return _object_key(self._pairs(depth + 1))
        raise self._error(f"expected a key instead of {text!r}")

    def _string(self, text: str) -> str:
        if "\\" not in text:
            return text[1:-1]
        try:
            return msgspec.json.decode(text, type=str)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise self._error(f"string cannot be read: {error}") from error

    def _mark(self, wanted: str) -> str:
        kind, text = self.token()
        if kind != "mark" or text not in wanted:
            raise self._error(f"expected {' or '.join(wanted)} instead of {text[:32]!r}")
        return text

    def _check_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH} levels")

    def _error(self, cause: str) -> CodecError:
        return CodecError(f"JSON at character {self._at}: {cause}")


class _Writer:
    """Writer of values to ``out``, piece by piece."""

    def __init__(self, out: list[str], indent: str) -> None:
        self._out = out
        self._indent = indent

    def write(self, value: Any, depth: int) -> None:
        """Write ``value``, ``depth`` levels down."""
        # Tables of many thousand numbers and texts are encoded while the broker serves: exact types come first.
        plain = _PLAIN.get(type(value))
        if plain is not None:
            self._out.append(plain(value))
        elif isinstance(value, msgspec.Struct):
            self._struct(value, depth + 1)
        elif isinstance(value, dict):
            self._object(value.items(), depth + 1)
        elif isinstance(value, Enum):
            self._out.append(_text(value.name))
        elif isinstance(value, ObjectKey):
            self._object(value, depth + 1)
        elif isinstance(value, list | tuple | set | frozenset):
            self._array(list(value), depth + 1)
        elif isinstance(value, Mapping):
            self._object(value.items(), depth + 1)
        else:
            self._out.append(_plain_subtype(value))

    def _struct(self, value: msgspec.Struct, depth: int) -> None:
        line = self._line(depth)
        before = "{" + line
        out = self._out
        for prefix, attribute in _fields_of(type(value)):
            item = getattr(value, attribute)
            if item is None:
                continue
            plain = _PLAIN.get(type(item))
            if plain is None:
                out.append(before + prefix)
                self.write(item, depth)
            else:
                out.append(before + prefix + plain(item))
            before = "," + line
        out.append("{}" if before[0] == "{" else self._line(depth - 1) + "}")

    def _object(self, pairs: Iterable[tuple[Any, Any]], depth: int) -> None:
        line = self._line(depth)
        before = "{" + line
        out = self._out
        for key, item in pairs:
            if item is None:
                continue
            shown = str(key) if type(key) is int else _text(key) if type(key) is str else self._key(key)
            plain = _PLAIN.get(type(item))
            if plain is None:
                out.append(f"{before}{shown}:")
                self.write(item, depth)
            else:
                out.append(f"{before}{shown}:{plain(item)}")
            before = "," + line
        out.append("{}" if before[0] == "{" else self._line(depth - 1) + "}")

    def _array(self, items: list[Any], depth: int) -> None:
        # fastjson writes a Java int[] on one line, and nothing else in RocketMQ's files is a list of numbers.
        inline = all(type(item) is int for item in items)
        if items and not self._indent and all(type(item) is str for item in items):
            self._out.append(msgspec.json.encode(items).decode())  # lists of topics may have a hundred thousand names
            return
        for number, item in enumerate(items):
            self._out += "," if number else "[", "" if inline else self._line(depth)
            self.write(item, depth)
        self._out.append("[]" if not items else "]" if inline else self._line(depth - 1) + "]")

    def _key(self, key: Any) -> str:
        if isinstance(key, bool) or not isinstance(key, str | int | ObjectKey | msgspec.Struct):
            raise CodecError(f"{type(key).__name__} cannot be the key of a JSON object")
        shown: list[str] = []
        _Writer(shown, "").write(key, 0)
        return "".join(shown)

    def _line(self, depth: int) -> str:
        return f"\n{self._indent * depth}" if self._indent else ""


def java_double(value: float) -> str:
    """Return ``value`` as Java's ``Double.toString`` writes it; ``null`` if it is not finite, as in fastjson."""
    if not isfinite(value):
        return "null"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else f"{value:f}"
    digits, _, exponent = f"{value:.16e}".partition("e")
    for precision in range(1, 17):
        shorter, _, shorter_exponent = f"{value:.{precision}e}".partition("e")
        if float(f"{shorter}e{shorter_exponent}") == value:
            digits, exponent = shorter, shorter_exponent
            break
    return f"{digits}E{int(exponent)}"


def _text(value: str | bytes) -> str:
    return msgspec.json.encode(value).decode()


_PLAIN: Final[dict[type, Callable[[Any], str]]] = {
    str: _text,
    bytes: _text,  # base64
    int: str,
    bool: ("false", "true").__getitem__,
    float: java_double,
    type(None): lambda _: "null",
}


def _plain_subtype(value: Any) -> str:
    for kind in (str, int, float):
        if isinstance(value, kind):
            return _PLAIN[kind](kind(value))
    raise CodecError(f"{type(value).__name__} has no form in JSON")


@cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Return the fields of a struct in alphabetical order: text before the value, and attribute."""
    names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    return tuple((_text(shown) + ":", attribute) for shown, attribute in sorted(names))


def _object_key(pairs: list[tuple[Any, Any]]) -> ObjectKey:
    return ObjectKey((str(name), _hashable(value)) for name, value in pairs)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return _object_key(list(value.items()))
    return tuple(_hashable(item) for item in value) if isinstance(value, list) else value
