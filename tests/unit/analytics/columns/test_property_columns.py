"""Vectorised properties against a plain parser of strings."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.analytics.columns.property_columns import properties_map, property_values
from tests.support.slow_store_reader import java_properties

_PIECE = st.sampled_from(
    ["KEYS", "TAGS", "a", "é", "KEYS\x01k", "TAGS\x01t", "X\x01KEYS\x01v", "\x01", "\x02", "\n", "\0"]
)
_TEXTS = st.lists(st.lists(_PIECE, max_size=12).map("".join), min_size=1, max_size=8)


@given(_TEXTS)
def test_the_map_has_the_pairs_a_plain_parser_finds(texts: list[str]) -> None:
    assert [dict(pairs) for pairs in properties_map(pa.array(texts)).to_pylist()] == list(map(java_properties, texts))


@given(_TEXTS)
def test_no_name_occurs_twice_in_a_map(texts: list[str]) -> None:
    for pairs in properties_map(pa.array(texts)).to_pylist():
        assert len(dict(pairs)) == len(pairs)


@given(_TEXTS)
def test_one_property_is_the_value_of_its_last_pair(texts: list[str]) -> None:
    for name in ("KEYS", "TAGS"):
        assert property_values(pa.array(texts), name).to_pylist() == [java_properties(t).get(name) for t in texts]


def test_pairs_stay_in_stored_order() -> None:
    (pairs,) = properties_map(pa.array(["b\x011\x02a\x012\x02b\x013\x02"])).to_pylist()
    assert pairs == [("a", "2"), ("b", "3")]
