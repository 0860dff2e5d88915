"""Selections against filtering what a plain loop reads."""

import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rocketbroker.analytics import DecodeReport, Selection, read_store
from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from rocketbroker.analytics.columns.selection import EVERYTHING, NOTHING, Range
from rocketbroker.analytics.log.message_reader import read_split
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.common.errors import ConfigError
from tests.support.commit_log_writer import V4_HOST, V6_HOST, CommitLogWriter
from tests.support.slow_store_reader import slow_rows

START_MS = 1_795_255_000_000
SCHEMA_IN_MS = pa.schema([(f.name, pa.int64() if f.name.endswith("_timestamp") else f.type) for f in MESSAGE_SCHEMA])
TOPICS = ("A", "B", "Thème", "%RETRY%" + "g" * 140, "A1")
TAGS = ("t", "t2", "é")
KEYS = ("k", "k1", "k 1", "ü")
SETS_AND_RANGES = ("topics", "queue_ids", "tags", "keys", "queue_offsets", "physical_offsets")
OF_TOPICS = ("topic_pattern", "topic_times", "queue_ranges", "exact")


def make_store(root: Path, count: int) -> list[dict[str, Any]]:
    """Messages of all kinds whose store times rise, some by nothing and some by seconds; their rows."""
    writer = CommitLogWriter(root, file_size=1 << 17)
    for number in range(count):
        properties = f"TAGS\x01{TAGS[number % 3]}\x02KEYS\x01{KEYS[number % 4]}\x02UNIQ_KEY\x01U{number}\x02"
        writer.append(
            b"x" * (number * 37 % 900),
            TOPICS[number % 7 % 5].encode(),
            properties.encode() if number % 6 else b"",
            born_host=V6_HOST if number % 5 == 0 else V4_HOST,
            store_host=V6_HOST if number % 11 == 0 else V4_HOST,
            queue_id=number % 4,
            queue_offset=number // 4,
            store_timestamp=START_MS + number // 3 * 997,
        )
    return slow_rows(writer.directory)


def within(number: int, bounds: Range | None) -> bool:
    low, high = bounds or (None, None)
    return (low is None or low <= number) and (high is None or number < high)


def matches(row: dict[str, Any], selection: Selection) -> bool:
    """Return the rows that a selection means, decided one by one."""
    words = {*(row["keys"] or "").split(" "), row["uniq_key"]}
    return (
        (selection.since_ms is None or row["store_timestamp"] >= selection.since_ms)
        and (selection.until_ms is None or row["store_timestamp"] < selection.until_ms)
        and (selection.topics is None or row["topic"] in selection.topics)
        and (selection.queue_ids is None or row["queue_id"] in selection.queue_ids)
        and (selection.tags is None or row["tags"] in selection.tags)
        and (selection.keys is None or bool(words & selection.keys))
        and (selection.brokers is None or row["broker"] in selection.brokers)
        and (selection.topic_pattern is None or re.fullmatch(selection.topic_pattern, row["topic"]) is not None)
        and within(row["store_timestamp"], (selection.topic_times or {}).get(row["topic"]))
        and within(row["queue_offset"], (selection.queue_ranges or {}).get(row["topic"], {}).get(row["queue_id"]))
        and all(
            bounds is None or bounds[0] <= row[name] < bounds[1]
            for name, bounds in (
                ("queue_offset", selection.queue_offsets),
                ("physical_offset", selection.physical_offsets),
            )
        )
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    root = tmp_path_factory.mktemp("broker-a")
    return root, make_store(root, 1_000)


def _range(low: int, high: int) -> st.SearchStrategy[tuple[int, int] | None]:
    pairs = st.tuples(st.integers(low, high), st.integers(1, high - low)).map(lambda pair: (pair[0], pair[0] + pair[1]))
    return st.none() | pairs


def _open(low: int, high: int) -> st.SearchStrategy[Range]:
    """Ranges, also empty ones and those without a limit."""
    return st.tuples(st.none() | st.integers(low, (low + high) // 2), st.none() | st.integers((low + high) // 2, high))


_TOPIC = st.sampled_from([*TOPICS, "none"])
_SELECTIONS = st.builds(
    lambda times, sets, ranges, of_topics: Selection(
        *(times or (None, None)), **dict(zip((*SETS_AND_RANGES, *OF_TOPICS), (*sets, *ranges, *of_topics), strict=True))
    ),
    _range(START_MS - 5_000, START_MS + 340_000),
    st.tuples(
        st.none() | st.sets(st.sampled_from([*TOPICS, "none"]), min_size=1),
        st.none() | st.sets(st.integers(0, 5), min_size=1),
        st.none() | st.sets(st.sampled_from([*TAGS, "none"]), min_size=1),
        st.none() | st.sets(st.sampled_from(["k", "k1", "1", "ü", "U5", "U700", "k 1"]), min_size=1),
    ),
    st.tuples(_range(0, 250), _range(0, 600_000)),
    st.tuples(
        st.none() | st.sampled_from(["A", "A.?|Th.*", "%RETRY%.*", "x"]),
        st.none() | st.dictionaries(_TOPIC, _open(START_MS, START_MS + 332_000), max_size=3),
        st.none() | st.dictionaries(_TOPIC, st.dictionaries(st.integers(0, 4), _open(0, 250), max_size=3), max_size=3),
        st.booleans(),
    ),
)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(selection=_SELECTIONS, split_size=st.sampled_from([3_000, 50_000, 1 << 26]))
def test_any_selection_gives_the_rows_that_filtering_gives(
    store: tuple[Path, list[dict[str, Any]]], selection: Selection, split_size: int
) -> None:
    root, rows = store
    report = DecodeReport()
    batches = [
        batch
        for split in plan_splits(root, split_size, selection)
        for batch in read_split(split, SCHEMA_IN_MS, report, selection=selection)
    ]
    found = pa.Table.from_batches(batches, SCHEMA_IN_MS).to_pylist()
    assert [row | {"properties": dict(row["properties"])} for row in found] == [
        row for row in rows if matches(row, selection)
    ]
    assert report == DecodeReport(messages=len(found))


@settings(max_examples=60, deadline=None)
@given(one=_SELECTIONS, other=_SELECTIONS)
def test_both_of_two_selections_and_their_mask_on_arrow_columns(
    store: tuple[Path, list[dict[str, Any]]], one: Selection, other: Selection
) -> None:
    root, rows = store
    assume(one.keys is None or other.keys in {None, one.keys})
    assume(one.topic_pattern is None or other.topic_pattern in {None, one.topic_pattern})
    both = one.and_(other)
    expected = [matches(row, one) and matches(row, other) for row in rows]
    assert [matches(row, both) for row in rows] == expected
    assert both.exact == (one.exact or other.exact) or both.is_nothing
    table = pa.Table.from_batches(read_store(root)).combine_chunks().to_batches()[0]
    assert both.arrow_mask(table).to_pylist() == expected


def test_several_stores_are_one_table_by_broker(tmp_path: Path) -> None:
    rows = [make_store(tmp_path / name, 20) for name in ("a", "b")]
    stores = f"x={tmp_path}/a,{tmp_path}/b"
    found = [row for batch in read_store(stores, ["broker", "physical_offset"]) for row in batch.to_pylist()]
    assert found == [
        {"broker": broker, "physical_offset": row["physical_offset"]}
        for broker, of_store in zip(("x", "b"), rows, strict=True)
        for row in of_store
    ]
    only = read_store(stores, ["broker"], selection=Selection(brokers={"b"}))
    assert {row["broker"] for batch in only for row in batch.to_pylist()} == {"b"}


def test_what_is_given_to_no_purpose_is_rejected() -> None:
    with pytest.raises(ConfigError, match="since 200 is not before until 200"):
        Selection(200, 200)
    with pytest.raises(ConfigError, match="topics: 'T' is one value; give a set of values"):
        Selection(topics="T")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"tags: 'a\\udcff' is not valid UTF-8, so no message can have it"):
        Selection(tags={"a\udcff"})  # what a shell hands over for a byte that is no UTF-8
    with pytest.raises(ConfigError, match="queue_offsets: the range from 5 to before 5 is empty"):
        Selection(queue_offsets=(5, 5))
    with pytest.raises(ConfigError, match=r"topic_pattern: '\(' is no regular expression: missing \)"):
        Selection(topic_pattern="(")
    with pytest.raises(ConfigError, match="the range from 2 to before 1 is reversed"):
        Selection(topic_times={"T": (2, 1)})
    with pytest.raises(ConfigError, match="the range from 4 to before 3 is reversed"):
        Selection(queue_ranges={"T": {0: (4, 3)}})
    with pytest.raises(ConfigError, match="selection by topic: the columns are only size"):
        Selection(topics={"T"}).arrow_mask(pa.record_batch({"size": [1]}))


def test_keys_of_two_selections_do_not_exclude_each_other() -> None:
    one, other = Selection(keys={"a"}), Selection(keys={"b"}, topics={"T"})
    with pytest.raises(ConfigError, match="select by keys once"):
        one.and_(other)
    with pytest.raises(ConfigError, match="two selections by topic_pattern cannot be combined"):
        Selection(topic_pattern="A").and_(Selection(topic_pattern="B"))
    assert one.and_(Selection(keys={"a"}, topics={"T"})) == one.and_(Selection(topics={"T"}))


def test_selections_without_a_message_in_common_select_nothing() -> None:
    for one, other in (
        (Selection(until_ms=5), Selection(since_ms=5)),
        (Selection(topics={"A"}), Selection(topics={"B"})),
        (Selection(physical_offsets=(0, 9)), Selection(physical_offsets=(9, 10))),
    ):
        assert one.and_(other).is_nothing
    assert EVERYTHING.is_all
    assert not NOTHING.is_all
    assert NOTHING.and_(EVERYTHING).is_nothing


def test_a_selection_can_be_sent_to_another_process() -> None:
    selection = Selection(1, 2, {"A"}, {1}, exact=True)
    assert pickle.loads(pickle.dumps(selection)) == selection
    assert hash(selection) == hash(pickle.loads(pickle.dumps(selection)))
