import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.message_properties import find_properties
from rocketbroker.codec.remoting import header_template
from rocketbroker.codec.remoting.frame import TypedJsonDecoder
from rocketbroker.codec.remoting.header_template import (
    INT,
    LONG,
    TEXT,
    HeaderTemplate,
    VaryingField,
    decode_plain,
    make_template,
)
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader, SendMessageRequestHeaderV2
from tests.support.golden_frames import answers_to

FIELDS = (VaryingField("queue_id", INT), VaryingField("born_timestamp", LONG), VaryingField("properties", TEXT))
DECODE = TypedJsonDecoder(SendMessageRequestHeaderV2)
EXT_FIELDS = {
    "a": "PG",
    "b": "T",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "x",
}


def header(opaque: Any = 7, **fields: Any) -> bytes:
    parts = {"code": 310, "extFields": EXT_FIELDS | fields, "flag": 0, "language": "JAVA", "opaque": opaque}
    return json.dumps(parts, separators=(",", ":"), ensure_ascii=False).encode()


def template_of(data: bytes) -> HeaderTemplate | None:
    return make_template(data, DECODE(memoryview(data)), FIELDS, DECODE)


@given(
    st.integers(-5, 10**9 + 5),
    st.integers(-5, 10**18 + 5),
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.integers(-5, 2**31 + 5),
)
def test_a_header_that_fits_is_what_the_decoder_makes_of_it(queue_id: int, born: int, properties: str, opaque: int):
    template = template_of(header())
    assert template is not None
    data = header(opaque, e=str(queue_id), g=str(born), i=properties)

    match = template.fullmatch(memoryview(b"before" + data + b"behind"), 6, 6 + len(data))

    if match is not None:
        assert template.command_of(match.groups()) == DECODE(memoryview(data))
    else:
        odd = '"' in json.dumps(properties)[1:-1] or min(queue_id, born, opaque) < 0
        assert odd or queue_id >= 10**9 or born >= 10**18 or opaque >= 10**9


@pytest.mark.parametrize(
    "fields", [{"e": "03"}, {"e": "+3"}, {"e": " 3"}, {"e": "3.0"}, {"e": ""}, {"g": "-1"}, {"b": "U"}, {"f": "4"}]
)
def test_any_other_header_does_not_fit(fields: dict[str, str]):
    template = template_of(header())
    assert template is not None

    assert template.fullmatch(header()) is not None
    assert template.fullmatch(header(**fields)) is None


@pytest.mark.parametrize(
    "data",
    [
        header().replace(b'"e":"3"', b'"e":"4","e":"3"'),
        header().replace(b'"e":"3"', b'"e":"3","e": "3"'),
        header().replace(b'"e":"3"', b'"e":3'),
        header().replace(b'"e":"3"', b'"e" : "3"'),
        header().replace(b'"opaque":7', b'"opaque":7,"opaque": 7'),
        header().replace(b'"e":"3"', b'"e":"3","\\u0065":"1"'),
        header().replace(b'"e":"3"', b'"e":"3","\\u0065":"5"'),
        header().replace(b'"i":"x"', b'"i":"x","\\u0069":"3"'),
        header().replace(b'"opaque":7', b'"opaque":7,"\\u006fpaque":4'),
        header(opaque=0),
        header(i='quote " in it'),
        header().replace(b'"e":"3","f":"0","g":"1700000000000"', b'"g":"1700000000000","f":"0","e":"3"'),
    ],
)
def test_no_template_is_made_where_values_might_lie_elsewhere(data: bytes):
    assert template_of(data) is None


@pytest.mark.parametrize(("code", "kind"), [(10, SendMessageRequestHeader), (310, SendMessageRequestHeaderV2)])
def test_recorded_sends_have_templates(code: int, kind: Any):
    decode = TypedJsonDecoder(kind)
    made = 0
    for sent, _ in answers_to(code):
        if not sent.binary:
            data = bytes(sent.header())
            template = make_template(data, decode(memoryview(data)), FIELDS, decode)
            if template is not None:
                assert template.fullmatch(data) is not None
                made += 1
    assert made >= 5


UNIQUE = "UNIQ_KEY\x017F0000010001\x02"
PAIRS = st.sampled_from(
    [
        "TAGS\x01T\x02",
        "TAGS\x01\x02",
        "KEYS\x01k1 k2\x02",
        "WAIT\x01true\x02",
        "n\x01\u00e4\u20ac\U0001f600\x02",
        'q\x01"\\/\x02',
    ]
)
OTHERS = st.sampled_from(
    [UNIQUE, "DELAY\x013\x02", "UNIQ_KEY\x01\x02", "xUNIQ_KEY\x01abc\x02", "TRACE_ON\x01true\x02", "open"]
)


def escaped(properties: str) -> bytes:
    return json.dumps(properties, ensure_ascii=False).encode()[1:-1]


@given(st.lists(PAIRS | OTHERS, max_size=3), st.lists(PAIRS | OTHERS, max_size=3))
def test_plain_properties_are_decoded_as_one_by_one(before: list[str], behind: list[str]):
    text = "".join([*before, UNIQUE, *behind])

    plain = decode_plain([escaped(text)])

    if plain is not None:
        raw = text if text.endswith("\x02") else text + "\x02"
        assert plain == ([raw.encode()], [find_properties(raw.encode())])


@given(st.lists(PAIRS, max_size=3), st.lists(PAIRS, max_size=3))
def test_properties_without_anything_for_the_broker_are_plain(before: list[str], behind: list[str]):
    text = "".join([*before, UNIQUE, *behind])

    assert decode_plain([escaped(text), escaped(UNIQUE[:-1])]) == (
        [text.encode(), UNIQUE.encode()],
        [find_properties(text.encode()), (None, b"7F0000010001", None, False)],
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        escaped("WAIT\x01true\x02"),
        escaped("UNIQ_KEY\x01\x02"),
        escaped("UNIQ_KEY\x01with blank\x02"),
        escaped(UNIQUE + "DELAY\x013\x02"),
        escaped("DELAY\x013\x02" + UNIQUE),
        escaped(UNIQUE + "UNIQ_KEY\x01second\x02"),
        escaped(UNIQUE + "k\x01v\0w\x02"),
        escaped("x" + UNIQUE),
        rb"\x" + escaped(UNIQUE),
        escaped(UNIQUE) + b"\\",
        escaped(UNIQUE) + b"\xff",
        escaped(UNIQUE) + b"raw\x01control\x02",
        rb"\\" + escaped(UNIQUE),
        rb"\ud83d" + escaped(UNIQUE),
    ],
)
def test_others_are_left_to_the_decoder(text: bytes):
    assert decode_plain([escaped(UNIQUE), text]) is None


def test_what_is_remembered_has_bounds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(header_template, "_REMEMBERED_TEXTS", 10)
    for number in range(100):
        text = escaped(f"KEYS\x01{number}\x02{UNIQUE}TAGS\x01{'t' * number * 10}\x02")
        assert decode_plain([text])

    assert 1 <= len(header_template._before) <= 10
    assert 1 <= len(header_template._behind) <= 10
    assert max(map(len, header_template._behind)) <= 512
