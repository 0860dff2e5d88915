"""Starts of streams: rows are those of a plain filter, over restarts with other options and over new topics."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.checkpointed_query import COLUMNS, Query
from tests.support.queued_store import QUEUES, START_MS, STEP_MS, TOPICS, QueuedStore

Rows = list[dict[str, Any]]


def time_at(number: int) -> int:
    """Return a time after that of a message, by its number in the log."""
    return START_MS + number * STEP_MS + 1


def shown(rows: Rows) -> Rows:
    return [{name: row[name] for name in COLUMNS} for row in rows]


@pytest.fixture
def store(tmp_path: Path) -> QueuedStore:
    return QueuedStore(tmp_path / "store", 120)


def query(store: QueuedStore, **options: object) -> Query:
    texts = {name: given if isinstance(given, str) else json.dumps(given) for name, given in options.items()}
    return Query(f"a={store.root}", **texts)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    queues=st.dictionaries(
        st.tuples(st.sampled_from(TOPICS), st.integers(0, QUEUES - 1)), st.none() | st.integers(-2, 14), max_size=6
    ),
    most=st.sampled_from(["20", "1000"]),
)
def test_each_queue_starts_at_its_offset_over_restarts_with_other_options(
    tmp_path_factory: pytest.TempPathFactory, seed: int, queues: dict[tuple[str, int], int | None], most: str
):
    store, chance = QueuedStore(tmp_path_factory.mktemp("starts") / "store", 120, seed), random.Random(seed)
    starts: dict[str, dict[str, int]] = {}
    first: dict[tuple[str, int], int] = {}
    for (topic, queue_id), offset in queues.items():
        end = store.end(topic, queue_id)
        starts.setdefault(topic, {})[str(queue_id)] = given = end if offset is None else min(offset, end)
        first[topic, queue_id] = end if given == -1 else max(given, 0)
    started = query(store, startingOffsets={"a": starts}, maxOffsetsPerTrigger=most)
    for _ in range(3):
        store.append(20, (*TOPICS, "New"), dispatched=chance.random() < 0.5)
        started.trigger(again=chance.random() < 0.3)
        if chance.random() < 0.5:
            started.restart_with(f"a={store.root}", maxOffsetsPerTrigger=most, startingOffsets="latest")
    wanted = [row for row in store.rows if row["queue_offset"] >= first.get((row["topic"], row["queue_id"]), 0)]
    assert started.run() == shown(wanted)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    times=st.integers(-5, 170) | st.dictionaries(st.sampled_from(TOPICS), st.integers(-5, 170), min_size=1),
    subscribed=st.booleans(),
)
def test_messages_from_a_time_on_are_read_over_restarts(
    tmp_path_factory: pytest.TempPathFactory, seed: int, times: int | dict[str, int], *, subscribed: bool
):
    store = QueuedStore(tmp_path_factory.mktemp("times") / "store", 120, seed)
    since = {topic: time_at(at) for topic, at in times.items()} if isinstance(times, dict) else time_at(times)
    topics = tuple(times) if isinstance(times, dict) and subscribed else TOPICS
    started = query(store, startingTimestamp=since, subscribe=",".join(topics), maxBytesPerTrigger="4000")
    started.trigger(again=True)
    store.append(60)
    started.restart_with(f"a={store.root}", subscribe=",".join(topics))
    assert started.run() == shown(
        [
            row
            for row in store.rows
            if row["topic"] in topics
            and row["store_timestamp"] >= (since.get(row["topic"], 0) if isinstance(since, dict) else since)
        ]
    )


def test_a_time_leads_to_a_place_in_the_log(store: QueuedStore):
    store.append(1_000)
    rows = store.rows
    started = query(store, startingTimestamp=rows[1_000]["store_timestamp"])
    assert rows[500]["physical_offset"] < started.progress["a"]["offset"] <= rows[1_000]["physical_offset"]
    assert started.run() == shown(rows[1_000:])


def test_topics_that_match_are_read_once_they_exist(store: QueuedStore):
    started = query(store, subscribePattern="Orders.*|New", maxBytesPerTrigger="4000")
    started.run()
    store.append(40, ("New", "Newer", "Refunds"))
    wanted = [row for row in store.rows if row["topic"] in {"Orders", "OrdersEU", "New"}]
    assert started.run() == shown(wanted)
    assert any(row["topic"] == "New" for row in wanted)


def test_a_checkpoint_has_the_selection_of_its_start(store: QueuedStore):
    started = query(store, startingOffsets={"a": {"Orders": {"0": -1, "1": 2, "2": -2}}})
    kept = {"queue_ranges": {"Orders": {"0": [store.end("Orders", 0), None], "1": [2, None], "2": [None, None]}}}
    assert started.progress["a"]["selection"] == kept
    started.run()
    assert started.progress["a"]["selection"] == kept
    assert "selection" not in query(store, startingOffsets="latest").progress["a"]
    del started.progress["a"]["selection"]  # as one of an earlier version
    store.append(10)
    started.restart_with(f"a={store.root}")
    started.rows.clear()
    assert started.run() == shown(store.rows[-10:])


def test_an_offset_that_does_not_exist_ends_a_new_query(store: QueuedStore):
    given = {"a": {"Orders": {"0": 999}}}
    with pytest.raises(ConfigError, match="startingOffsets has 999 for queue 0 of Orders at a, where offsets are 0 to"):
        query(store, startingOffsets=given)
    min(store.writer.directory.iterdir()).unlink()
    given["a"]["Orders"]["0"] = 0
    with pytest.raises(StoreError, match="set the option failOnDataLoss=false to begin with what is left"):
        query(store, startingOffsets=given)
    assert query(store, startingOffsets=given, failOnDataLoss="false").run() == shown(store.rows)
