import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.remoting.header_template import INT, LONG, TEXT, HeaderTemplate, VaryingField, make_template
from rocketbroker.codec.remoting.headers.send_message import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.json_header import TypedJsonDecoder
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
