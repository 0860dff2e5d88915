"""Arrow arrays made of numpy's memory; how slices of records come out is tested in test_message_reader.py."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rocketbroker.analytics.columns.arrow_columns import (
    number_array,
    properties_map,
    property_values,
    text_array,
    with_properties,
)
from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.slow_store_reader import java_properties

READ = """
import sys
from rocketbroker.analytics import read_store
print(sum(batch.num_rows for batch in read_store(sys.argv[1], sys.argv[2].split(","))), "pandas" in sys.modules)
"""


@pytest.mark.parametrize(
    "values",
    [
        np.array([], np.int64),
        np.array([1, -2, 1 << 40]),
        np.array([1, -2, 3], ">i4"),
        np.arange(9, dtype=np.int16)[::4],
        np.array([1.5, -0.0]),
    ],
    ids=["none", "int64", "other byte order", "every fourth", "float"],
)
def test_numbers_come_out_as_pyarrow_itself_has_them(values: NDArray[Any]) -> None:
    made = number_array(values)
    made.validate(full=True)
    assert made.equals(pa.array(values.astype(values.dtype.newbyteorder("="))))


def test_what_is_missing_is_null_and_a_type_of_the_same_width_is_taken_on() -> None:
    kind = pa.timestamp("us", tz="UTC")
    missing = np.arange(11) % 3 == 1
    made = number_array(np.arange(11), kind, missing)
    made.validate(full=True)
    assert made.equals(pa.array(np.arange(11), mask=missing).cast(kind))


def test_texts_come_out_as_pyarrow_itself_has_them() -> None:
    for texts in ([], ["", "ä", "b c"]):
        made = text_array(texts)
        made.validate(full=True)
        assert made.equals(pa.array(texts, pa.string()))


def test_reading_any_stored_column_does_not_load_pandas(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path)
    writer.append(b"body", properties=b"KEYS\x01a b\x02TAGS\x01t\x02")
    command = [sys.executable, "-c", READ, str(tmp_path), ",".join(MESSAGE_SCHEMA.names)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]


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


@pytest.mark.parametrize("names", [{"a"}, {"a", "c", "none"}, {"none"}, None])
def test_only_named_properties_are_left(names: set[str] | None) -> None:
    rows = [{"a": "1", "b": "2"}, None, {}, {"c": "3"}, {"b": "4", "c": "5", "a": "6"}]
    column = pa.array([row and list(row.items()) for row in rows], pa.map_(pa.string(), pa.string()))
    batch = pa.record_batch({"size": pa.array(range(5)), "properties": column})
    for first in (0, 2):
        found = with_properties(batch.slice(first), names).to_pydict()
        assert found["size"] == list(range(first, 5))
        assert [None if row is None else dict(row) for row in found["properties"]] == [
            row if row is None else {name: value for name, value in row.items() if names is None or name in names}
            for row in rows[first:]
        ]
