"""Properties found by numpy are those that ``get_property`` finds."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message import property_slices as property_slices_module
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.property_slices import property_slices

NAMES = (b"TAGS", b"KEYS", b"UNIQ_KEY")
PART = st.sampled_from([*NAMES, b"XTAGS", b"", b"a", b"two words", "ä".encode()])
PROPERTIES = st.lists(st.tuples(PART, PART)).map(lambda pairs: b"".join(b"%b\x01%b\x02" % pair for pair in pairs))
ODD = [b"TAGS", b"KEYS", b"UNIQ_KEY", b"\x01", b"\x02", b"a", b"", b"XTAGS", b"KEYS2", b"\xc3\xa9 k"]
# Names and lengths of values; the values of one layout differ, and now and then bear a separator.
LAYOUT = st.lists(st.tuples(st.sampled_from([*NAMES, b"WAIT", b"XTAGS"]), st.integers(0, 12)), max_size=5)
VALUE_BYTES = bytes(range(0x30, 0x5A)) * 2 + b"\x01\x02\x82\xff"
BETWEEN = st.sampled_from([b"", b"body", b"\x02TAGS\x01in the body\x02", b"\x01\x02"])


def values_of(messages: list[tuple[bytes, bytes]], *names: bytes) -> list[list[bytes | None]]:
    """The values of ``names``, else ``NAMES``, that numpy finds in messages, each a text between and its properties."""
    data, at = b"", []
    for between, properties in messages:
        at.append(len(data) + len(between))
        data += between + properties
    lengths = np.array([len(properties) for _, properties in messages], np.int64)
    found = property_slices(np.frombuffer(data, np.uint8), np.array(at, np.int64), lengths, *(names or NAMES))
    return [
        [data[start : start + length] or None for start, length in zip(*map(np.ndarray.tolist, slices), strict=True)]
        for slices in found
    ]


def expected(messages: list[tuple[bytes, bytes]], *names: bytes) -> list[list[bytes | None]]:
    return [[get_property(properties, name) for _, properties in messages] for name in names or NAMES]


@given(st.lists(st.tuples(BETWEEN, PROPERTIES)))
def test_each_message_has_its_own(messages: list[tuple[bytes, bytes]]) -> None:
    assert values_of(messages) == expected(messages)


@given(st.lists(st.tuples(BETWEEN, st.lists(st.sampled_from(ODD), max_size=12).map(b"".join)), min_size=1))
def test_damaged_properties_are_parted_alike(messages: list[tuple[bytes, bytes]]) -> None:
    assert values_of(messages) == expected(messages)


@pytest.mark.parametrize("tall", [1, 1000], ids=["by column", "by row"])
@given(st.lists(LAYOUT, min_size=1, max_size=7), st.integers(0, 2**32))
def test_many_messages_of_few_layouts(tall: int, layouts: list[list[tuple[bytes, int]]], seed: int) -> None:
    random = Random(seed)
    messages = []
    for _ in range(60):
        pairs = [
            name + b"\x01" + bytes(random.choices(VALUE_BYTES, k=length)) for name, length in random.choice(layouts)
        ]
        messages.append((random.choice([b"", b"body", b"TAGS\x01b\x02"]), b"\x02".join([*pairs, b""])))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rocketbroker.codec.message.property_slices._TALL", tall)
        assert values_of(messages) == expected(messages)


@pytest.mark.parametrize("tall", [1, 1000], ids=["by column", "by row"])
@given(
    st.sampled_from([(b"a",), (b"KEYS",), (b"a", b"KEYS"), (b"a", b"none")]), st.integers(0, 20), st.integers(0, 2**32)
)
def test_whatever_lies_before_the_wanted_pairs(tall: int, names: tuple[bytes, ...], size: int, seed: int) -> None:
    """The bytes before them look like pairs, also of wanted names, and may run into them."""
    random = Random(seed)
    endings = [b"a\x01%b\x02KEYS\x01kk\x02", b"KEYS\x01%b\x02a\x01v\x02", b"a\x01%b\x02TAGS\x01t\x02", b"a\x01%b"]
    chosen = random.sample(endings, 2)
    messages = []
    for _ in range(60):
        before = b"".join(random.choices([b"a", b"\x01", b"\x02", b"KEYS", b"x"], k=size))[:size]
        between = random.choice([b"\x02", b"\x02", b"\x02", b"x"])
        messages.append(
            (b"body", before + between + random.choice(chosen) % random.choice([b"1", b"2", b"\x02", b"17"]))
        )

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rocketbroker.codec.message.property_slices._TALL", tall)
        assert values_of(messages, *names) == expected(messages, *names)


def test_messages_that_differ_before_the_wanted_pair_have_one_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [
        (b"", bytes(Random(number).choices(b"a\x01\x02", k=40)) + b"\x02n\x01%d\x02" % (number % 10))
        for number in range(60)
    ]
    messages.append((b"", b"the end of the buffer"))
    parsed = 0

    def note(_data: object, _at: object, _lengths: object, rows: Positions, *_rest: object) -> None:
        nonlocal parsed
        parsed = len(rows)

    with monkeypatch.context() as patched:
        patched.setattr(property_slices_module, "_pair_by_pair", note)
        assert values_of(messages, b"n") == expected(messages, b"n")
    assert parsed == 1, "the last one"


def test_a_separator_within_a_value_makes_another_layout() -> None:
    like = [(b"", b"TAGS\x01%b\x02KEYS\x01%b\x02" % (b"t" * 9, b"k" * 9))] * 40
    other = (b"", b"TAGS\x01%b\x02KEYS\x01%b\x02" % (b"t" * 9, b"k\x02TAGS\x01zz"))

    assert values_of([*like, other])[0] == [b"t" * 9] * 40 + [b"zz"]


def test_no_message_and_no_name() -> None:
    none = np.empty(0, np.int64)

    assert property_slices(np.empty(0, np.uint8), none, none) == ()
    assert [len(slices.starts) for slices in property_slices(np.empty(0, np.uint8), none, none, *NAMES)] == [0, 0, 0]
