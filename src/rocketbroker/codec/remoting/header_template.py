"""Templates of JSON headers: those of one connection mostly differ in a few values.

A template is made of one header. It is a regular expression that has every byte of that header, but for the values that
vary; of these it takes only texts that the JSON decoder takes unchanged. A header that fits needs no decoder.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_properties import FoundProperties, find_properties
from rocketbroker.codec.remoting.remoting_command import Command, CommandCustomHeader
from rocketbroker.common.errors import RocketBrokerError

# Values that the decoder takes and that are written in one way only: no leading zeros, no number out of range.
INT: Final = rb"0|[1-9]\d{0,8}"
LONG: Final = rb"0|[1-9]\d{0,17}"
# Bytes of a JSON string, not decoded: the handler decodes them and rejects invalid ones.
TEXT: Final = rb'[^"]*'
_OPAQUE: Final = b'"opaque":'
_NUMBER: Final = re.compile(rb"[1-9]\d*")
_decode: Final = msgspec.json.Decoder(str).decode

#: Decodes a header; raises RocketBrokerError when it is broken.
Decode = Callable[[memoryview], Command]


class FullMatch(Protocol):
    """``fullmatch`` of a pattern of bytes."""

    def __call__(self, data: ReadableBuffer, begin: int = 0, end: int = sys.maxsize, /) -> re.Match[bytes] | None: ...


class VaryingField(NamedTuple):
    """A custom field whose value differs from header to header.

    Attributes:
        name: its name in the typed header; in raw ``extFields`` its name there.
        pattern: the values that a template takes: ``INT``, ``LONG``, ``TEXT``, or those of a raw field.
    """

    name: str
    pattern: bytes


class HeaderTemplate:
    """All headers that differ from one only in some custom fields and in the opaque.

    Attributes:
        command: what the header decodes to.
        fullmatch: matches a header; the groups are the values in the order of their fields, the opaque last.
    """

    __slots__ = ("_fields", "command", "fullmatch")

    def __init__(self, command: Command, fields: Sequence[VaryingField], pattern: re.Pattern[bytes]) -> None:
        self.command = command
        self._fields = fields
        self.fullmatch: FullMatch = pattern.fullmatch

    def command_of(self, values: Sequence[bytes]) -> Command:
        """Return what a header with these values decodes to, for values without escapes that the decoder resolves."""
        pairs = zip(self._fields, values, strict=False)
        header = self.command.header
        if isinstance(header, dict):
            header = header | {field.name: decode_text(value) for field, value in pairs}
        else:
            fields = {field.name: decode_text(value) if field.pattern is TEXT else int(value) for field, value in pairs}
            header = msgspec.structs.replace(header, **fields)
        return msgspec.structs.replace(self.command, header=header, opaque=int(values[-1]))


def names_on_wire(header_type: type[CommandCustomHeader]) -> dict[str, str]:
    """Return the name in ``extFields`` of each field of a typed header."""
    return dict(zip(header_type.__struct_fields__, header_type.__struct_encode_fields__, strict=True))


def decode_text(value: bytes) -> str:
    """Return the text that stands in JSON between two quotation marks.

    Raises:
        msgspec.MsgspecError: It is no text.
        UnicodeError: It is not UTF-8.
    """
    return _decode(b'"%b"' % value)


def make_template(
    header: bytes, command: Command, fields: Sequence[VaryingField], decode: Decode
) -> HeaderTemplate | None:
    """Return a template of a header, or ``None`` if the decoder finds the values in other places than a template would.

    Args:
        header: the header.
        command: what it decodes to.
        fields: the fields that vary, in the order in which the header has them.
        decode: the decoder.
    """
    names = {} if isinstance(command.header, dict) else names_on_wire(type(command.header))
    spans = [_text_span(header, names.get(field.name, field.name)) for field in fields] + [_opaque_span(header)]
    places = [span for span in spans if span is not None]
    if len(places) < len(spans) or sorted(places) != places:
        return None
    constant = [header[end:start] for (_, end), (start, _) in zip([(0, 0), *places], [*places, (None, 0)], strict=True)]
    patterns = [b"(%b)" % field.pattern for field in fields] + [b"(%b)" % INT]
    command = msgspec.structs.replace(command, body=b"")
    template = HeaderTemplate(
        command, fields, re.compile(_alternated([re.escape(each) for each in constant], patterns))
    )
    return template if _is_exact(template, constant, len(fields), decode) else None


def _is_exact(template: HeaderTemplate, constant: Sequence[bytes], count: int, decode: Decode) -> bool:
    """Return true if the decoder reads other values from just the places that the template has found.

    A header with one name twice, or with blanks, has values in other places. These may hold what is tried: so it is
    tried twice, with no value in common.
    """
    tried = [b"%d" % number for number in range(1, 2 * count + 3)]
    try:
        return all(
            decode(memoryview(_alternated(constant, values))) == template.command_of(values)
            for values in (tried[: count + 1], tried[count + 1 :])
        )
    except RocketBrokerError:
        return False


def _alternated(constant: Sequence[bytes], varying: Sequence[bytes]) -> bytes:
    return b"".join(piece for pair in zip(constant, [*varying, b""], strict=True) for piece in pair)


def _text_span(header: bytes, name: str) -> tuple[int, int] | None:
    """Return where the value of a custom field begins and ends; ``None`` if that is not certain."""
    begin = b'"%b":"' % name.encode()
    if header.count(begin) != 1:
        return None
    start = header.index(begin) + len(begin)
    end = header.find(b'"', start)
    return None if end < 0 else (start, end)


def _opaque_span(header: bytes) -> tuple[int, int] | None:
    if header.count(_OPAQUE) != 1:
        return None
    found = _NUMBER.match(header, header.index(_OPAQUE) + len(_OPAQUE))
    return None if found is None else found.span()


# Properties of a message as they stand in a JSON header, with their separators escaped.
#
#     properties := (name \u0001 value \u0002)*        the last separator may be missing
#
# What precedes and follows the unique id is the same in many messages of a sender. It is decoded once and remembered.

_UNIQUE_KEY: Final = rb"UNIQ_KEY\u0001"
_RAW_UNIQUE_KEY: Final = b"UNIQ_KEY\x01"
_PAIR_END: Final = rb"\u0002"
_RAW_PAIR_END: Final = b"\x02"
# Bounds of what is remembered: so many texts of each kind, none of them longer.
_REMEMBERED_TEXTS: Final = 4096
_REMEMBERED_LENGTH: Final = 512

# Raw bytes, TAGS and KEYS of whole pairs. A bare tuple, since each message has two.
_Pairs = tuple[bytes, bytes | None, bytes | None]
# Pairs before the unique id, with its name behind them; pairs behind it, with the separator before them.
_before: dict[bytes, _Pairs] = {}
_behind: dict[bytes, _Pairs] = {}


def decode_plain(texts: Sequence[bytes]) -> tuple[list[bytes], list[FoundProperties]] | None:
    """Return the raw properties of messages, each ended by a separator, and what ``find_properties`` finds in them.

    Returns ``None`` if one of them has no unique id of letters and digits, a property for the broker or a NUL, or is no
    text of a JSON string.
    """
    properties: list[bytes] = []
    found: list[FoundProperties] = []
    for text in texts:
        first, _, rest = text.partition(_UNIQUE_KEY)
        unique_key, _, last = rest.partition(_PAIR_END)
        before = _before.get(first) or _read_before(first)
        behind = _behind.get(last) or _read_behind(last)
        if before is None or behind is None or not unique_key.isalnum():
            return None
        properties.append(before[0] + unique_key + behind[0])
        found.append((behind[1] or before[1], unique_key, behind[2] or before[2], False))
    return properties, found


def _read_before(text: bytes) -> _Pairs | None:
    pairs = _read(text)
    if pairs is None or (text and not pairs[0].endswith(_RAW_PAIR_END)):
        return None  # the name of another property ends like that of the unique id
    return _remember(_before, text, (pairs[0] + _RAW_UNIQUE_KEY, *pairs[1:]))


def _read_behind(text: bytes) -> _Pairs | None:
    pairs = _read(text)
    if pairs is None:
        return None
    ended = pairs[0] if pairs[0].endswith(_RAW_PAIR_END) else pairs[0] + _RAW_PAIR_END
    return _remember(_behind, text, (_RAW_PAIR_END + ended if pairs[0] else ended, *pairs[1:]))


def _read(text: bytes) -> _Pairs | None:
    """Decode pairs; return ``None`` if they are special."""
    try:
        raw = decode_text(text).encode()
    except (msgspec.MsgspecError, UnicodeError):
        return None
    tags, unique_key, keys, is_special = find_properties(raw)
    return None if unique_key is not None or is_special or b"\0" in raw else (raw, tags, keys)


def _remember(texts: dict[bytes, _Pairs], text: bytes, pairs: _Pairs) -> _Pairs:
    if len(text) <= _REMEMBERED_LENGTH:
        if len(texts) >= _REMEMBERED_TEXTS:
            texts.clear()
        texts[text] = pairs
    return pairs
