import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.message_properties import find_properties
from rocketbroker.codec.remoting import escaped_properties
from rocketbroker.codec.remoting.escaped_properties import decode_plain

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
    monkeypatch.setattr(escaped_properties, "_REMEMBERED_TEXTS", 10)
    for number in range(100):
        text = escaped(f"KEYS\x01{number}\x02{UNIQUE}TAGS\x01{'t' * number * 10}\x02")
        assert decode_plain([text])

    assert 1 <= len(escaped_properties._before) <= 10
    assert 1 <= len(escaped_properties._behind) <= 10
    assert max(map(len, escaped_properties._behind)) <= 512
