"""Java's hash, against values Java gave."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message import tags_code as tc
from tests.support import golden_store

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("", 0),
        ("a", 97),
        ("TagBatch", -726516768),
        ("polygenelubricants", -0x80000000),
        ("é", 233),
        ("\N{GRINNING FACE}", 0xD83D * 31 + 0xDE00),
    ],
)
def test_known_hashes(value: str, code: int) -> None:
    assert tc.java_hash(value) == code


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_golden_tag_codes(name: str) -> None:
    checked = 0
    for message in golden_store.manifest(name)["messages"]:
        if "cqTagCode" in message and "cqTagCode_kind" not in message:
            assert tc.tags_code(message["tags"]) == message["cqTagCode"]
            checked += bool(message["tags"])
    assert checked > 4


def slow_hash(value: str) -> int:
    found = 0
    data = value.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        found = (found * 31 + data[at] * 256 + data[at + 1]) % (1 << 32)
    return found - (1 << 32) if found >= 1 << 31 else found


@given(st.one_of(st.text(max_size=40), st.text("a\x7f0", min_size=55, max_size=200)))
def test_it_is_the_polynomial_over_utf_16(value: str) -> None:
    assert tc.java_hash(value) == slow_hash(value)


@given(text, text)
def test_a_prefix_need_not_be_hashed_again(prefix: str, rest: str) -> None:
    assert tc.extend_hash(tc.java_hash(prefix), rest.encode()) == tc.java_hash(prefix + rest)


@given(text)
def test_bytes_and_text_agree(value: str) -> None:
    assert tc.java_hash_bytes(value.encode()) == tc.java_hash(value)
    assert tc.tags_code_bytes(value.encode()) == tc.tags_code(value) == tc.java_hash(value)


def test_no_tags_no_code() -> None:
    assert tc.tags_code(None) == tc.tags_code("") == tc.tags_code_bytes(None) == tc.tags_code_bytes(b"") == 0


def test_long_tags_are_hashed_and_not_kept() -> None:
    before = tc._cached.cache_info().currsize
    assert tc.tags_code("x" * 5000) == slow_hash("x" * 5000)
    assert tc._cached.cache_info().currsize == before
