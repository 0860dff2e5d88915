"""Values and texts gathered by numpy are those of plain slices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.columns import (
    distinct_texts,
    gather,
    index_key_hash_many,
    java_hash_joined,
    java_hash_many,
    java_hash_slices,
    rows_at,
)
from rocketbroker.codec.message.tags_code import extend_hash, java_hash_bytes
from rocketbroker.codec.storefile.index_file_layout import key_hash_of


def test_values_are_gathered_aligned_or_not():
    data = np.frombuffer(bytes(range(20)), np.uint8)

    assert gather(data, ">i4", np.array([0, 1, 16])).tolist() == [0x00010203, 0x01020304, 0x10111213]
    assert rows_at(data, np.array([2, 17]), 3).tolist() == [[2, 3, 4], [17, 18, 19]]


@given(st.lists(st.sampled_from([b"", b"a", b"ab", b"abc", b"b", *[b"topic-%d" % number for number in range(50)]])))
def test_different_texts_are_numbered(texts: list[bytes]):
    lengths = np.array(list(map(len, texts)), np.int64)
    starts = np.cumsum(lengths) - lengths

    found, numbers = distinct_texts(np.frombuffer(b"".join(texts), np.uint8), starts, lengths)

    assert [found[number] for number in numbers.tolist()] == texts
    assert len(set(found)) == len(found) == len(set(texts))


keys = st.lists(
    st.one_of(st.text(max_size=6).map(lambda t: t.encode("utf-8", "replace")), st.binary(max_size=6)), max_size=20
)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)


@given(keys)
def test_each_is_its_own_hash(many: list[bytes]) -> None:
    found = java_hash_many(many)
    assert found.dtype == np.int32
    assert found.tolist() == [java_hash_bytes(key) for key in many]
    assert index_key_hash_many(many).tolist() == [key_hash_of(java_hash_bytes(key)) for key in many]


@given(st.lists(st.tuples(int32, st.text(max_size=6).map(lambda t: t.encode("utf-8", "replace"))), max_size=20))
def test_each_extends_its_own_prefix(pairs: list[tuple[int, bytes]]) -> None:
    many = [key for _, key in pairs]
    found = java_hash_many(many, [prefix for prefix, _ in pairs])
    assert found.tolist() == [extend_hash(prefix, key) for prefix, key in pairs]


@given(st.lists(int32, min_size=1, max_size=20), st.integers(1, 4), st.data())
def test_joined_keys_are_parted(prefixes: list[int], length: int, data: st.DataObject) -> None:
    joined = data.draw(st.binary(min_size=length * len(prefixes), max_size=length * len(prefixes)))
    many = [joined[at : at + length] for at in range(0, len(joined), length)]
    found = java_hash_joined(joined, np.array(prefixes, np.int32))
    assert found.tolist() == [extend_hash(prefix, key) for prefix, key in zip(prefixes, many, strict=True)]


def test_keys_of_one_length_and_long_keys() -> None:
    same = [b"%032d" % number for number in range(100)]
    prefixes = np.arange(100, dtype=np.int32)
    assert java_hash_many(same, prefixes).tolist() == [extend_hash(n, key) for n, key in enumerate(same)]
    assert java_hash_many([b"x" * 5000, b"y"]).tolist() == [java_hash_bytes(b"x" * 5000), 121]
    assert java_hash_many([]).tolist() == []


def test_the_hash_without_an_absolute_value_is_zero() -> None:
    assert index_key_hash_many([b"polygenelubricants", b"a"]).tolist() == [0, 97]


def test_prefixes_must_match_the_keys() -> None:
    with pytest.raises(ValueError, match="2 keys need as many prefix hashes, not 1"):
        java_hash_many([b"a", b"b"], [1])


@given(st.lists(st.text(max_size=70)))
def test_slices_of_one_buffer_hash_like_the_texts_in_them(texts: list[str]) -> None:
    many = [text.encode("utf-8", "replace") for text in [*texts, "long" * 400]]
    lengths = np.array([len(key) for key in many], np.int64)
    starts = np.cumsum(lengths) - lengths
    data = np.frombuffer(b"".join(many), np.uint8)
    prefixes = np.arange(len(many), dtype=np.int32)
    assert java_hash_slices(data, starts, lengths).tolist() == java_hash_many(many).tolist()
    assert java_hash_slices(data, starts, lengths, prefixes).tolist() == java_hash_many(many, prefixes).tolist()
