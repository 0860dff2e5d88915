"""Batches between starts and ends: rows are those of a plain filter, whatever is skipped."""

import json
import pickle
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructField, StructType

from rocketbroker.analytics.log import queue_plan
from rocketbroker.analytics.spark.rocketmq_store import RocketMQStore, TablePartition
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.queued_store import QUEUES, START_MS, STEP_MS, TOPICS, QueuedStore

SCHEMA = StructType(
    [
        StructField("broker", StringType()),
        StructField("topic", StringType()),
        StructField("queue_id", IntegerType()),
        StructField("queue_offset", LongType()),
    ]
)
PROPERTIES = StructType([StructField("properties", MapType(StringType(), StringType()))])
COUNT = 400

Rows = list[dict[str, Any]]
Stores = dict[str, QueuedStore]


@pytest.fixture(autouse=True)
def small_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read small stores through their queues."""
    monkeypatch.setattr(queue_plan, "_DISPATCH_MARGIN", 5_000)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    root = tmp_path_factory.mktemp("stores")
    return {name: QueuedStore(root / name, COUNT, seed) for seed, name in enumerate(("a", "b"))}


def parts_of(
    stores: Stores, options: Mapping[str, object] = MappingProxyType({}), schema: StructType = SCHEMA
) -> tuple[Any, list[TablePartition]]:
    texts = {name: given if isinstance(given, str) else json.dumps(given) for name, given in options.items()}
    path = ",".join(f"{name}={store.root}" for name, store in stores.items())
    reader = RocketMQStore({"path": path, **texts}).reader(schema)
    return reader, pickle.loads(pickle.dumps(reader.partitions()))


def read(stores: Stores, options: Mapping[str, object] = MappingProxyType({}), schema: StructType = SCHEMA) -> Rows:
    reader, parts = parts_of(stores, options, schema)
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def is_between(row: dict[str, Any], options: dict[str, Any], which: str) -> bool:
    """Decide as the options say, one row at a time: is it at or after the start, or before the end."""
    offset = options.get(f"{which}Offsets", {}).get(row["broker"], {}).get(row["topic"], {}).get(str(row["queue_id"]))
    at = options.get(f"{which}Timestamp")
    if isinstance(at, dict):
        at = at.get(row["topic"])
    if which == "starting":
        return bool(row["queue_offset"] >= (offset or 0) and row["store_timestamp"] >= (at or 0))
    return (offset in {None, -1} or row["queue_offset"] < offset) and (at is None or row["store_timestamp"] < at)


def is_subscribed(topic: str, options: dict[str, Any]) -> bool:
    if "subscribe" in options:
        return topic in options["subscribe"].split(",")
    return re.fullmatch(options.get("subscribePattern", ".*"), topic) is not None


def filtered(stores: Stores, options: dict[str, Any]) -> Rows:
    rows = [row | {"broker": broker} for broker, store in stores.items() for row in store.rows]
    wanted = (row for row in rows if is_subscribed(row["topic"], options))
    between = (row for row in wanted if is_between(row, options, "starting") and is_between(row, options, "ending"))
    return [{name: row[name] for name in SCHEMA.names} for row in between]


def queue_bounds(data: st.DataObject, stores: Stores, topics: list[str]) -> list[dict[str, Any]]:
    """Draw starts and ends of some queues."""
    bounds: list[dict[str, Any]] = [{}, {}]
    for broker, topic, queue_id in data.draw(
        st.sets(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(topics), st.integers(0, QUEUES - 1)), max_size=5)
    ):
        end = stores[broker].end(topic, queue_id)
        for found, offset in zip(bounds, sorted(data.draw(st.tuples(*[st.integers(0, end)] * 2))), strict=True):
            special = -2 if found is bounds[0] else -1
            chosen = data.draw(st.sampled_from([offset, offset, special]))
            found.setdefault(broker, {}).setdefault(topic, {})[str(queue_id)] = chosen
    return bounds


def time_bounds(data: st.DataObject, topics: list[str]) -> list[Any]:
    """Draw starts and ends by time, of all topics or of some."""
    times = st.tuples(*[st.integers(-9, COUNT + 9)] * 2).filter(lambda pair: pair[0] < pair[1])
    drawn = data.draw(times | st.dictionaries(st.sampled_from(topics), times))
    if isinstance(drawn, tuple):
        return [START_MS + number * STEP_MS for number in drawn]
    return [{topic: START_MS + pair[which] * STEP_MS for topic, pair in drawn.items()} for which in (0, 1)]


@pytest.mark.long
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_rows_are_those_of_a_plain_filter(stores: Stores, data: st.DataObject):
    ways = [{"subscribePattern": ".*"}, {"subscribePattern": "Ord.*"}, {"subscribe": "Refunds,Gone"}]
    options: dict[str, Any] = dict(data.draw(st.sampled_from(ways)))
    topics = [topic for topic in TOPICS if is_subscribed(topic, options)]
    by_offset, by_time = queue_bounds(data, stores, topics), time_bounds(data, topics)
    for number, which in enumerate(("starting", "ending")):
        kind = data.draw(st.sampled_from(["Offsets", "Timestamp", ""]))
        if kind:
            options[f"{which}{kind}"] = (by_offset if kind == "Offsets" else by_time)[number]
    tasks = {"minPartitions": data.draw(st.sampled_from(["1", "9"])), "splitSize": "20k"}
    assert read(stores, options | tasks) == filtered(stores, options)


def test_a_range_of_a_queue_is_read_through_the_queue(stores: Stores):
    options: dict[str, Any] = {
        "subscribe": "Refunds",
        "startingOffsets": {"a": {"Refunds": {str(queue): 10 for queue in range(QUEUES)}}},
        "endingOffsets": {"a": {"Refunds": {"0": 15, "1": 15, "2": 15}}, "b": {"Refunds": {"0": 0}}},
    }
    _, parts = parts_of(stores, options)
    entries = [each for part in parts if part.broker == "a" for each in part.part.entries]
    assert sum(each.end - each.first for each in entries) == 5 * QUEUES
    assert read(stores, options) == filtered(stores, options)


def test_at_least_so_many_tasks(stores: Stores):
    assert len(parts_of(stores, {"minPartitions": "41"})[1]) >= 41
    assert len(parts_of(stores, {"minPartitions": "30", "subscribe": "Refunds"})[1]) >= 30
    assert len(parts_of(stores)[1]) < 30


def test_a_topic_without_messages_gives_no_rows(stores: Stores):
    assert read(stores, {"subscribe": "Gone"}) == []
    assert read(stores, {"subscribePattern": "Go.*"}) == []


def test_wrong_offsets_end_the_planning(stores: Stores):
    with pytest.raises(ConfigError, match="endingOffsets has 999 for queue 0 of Orders at b, where offsets are 0 to"):
        parts_of(stores, {"endingOffsets": {"b": {"Orders": {"0": 999}}}})
    with pytest.raises(ConfigError, match="startingOffsets has the broker 'c', which the stores do not have"):
        parts_of(stores, {"startingOffsets": {"c": {"Orders": {"0": 1}}}})
    with pytest.raises(ConfigError, match="table topics does not support selection by queue"):
        parts_of(stores, {"startingOffsets": {"a": {"Orders": {"0": 1}}}, "table": "topics"}, StructType())


def test_some_properties(stores: Stores):
    rows = read(stores, {"includeProperties": "TAGS,none,KEYS"}, PROPERTIES)
    assert [dict(row["properties"]) for row in rows] == [
        {name: row["properties"][name] for name in ("KEYS", "TAGS")} for store in stores.values() for row in store.rows
    ]


def test_a_file_that_became_shorter_after_planning_is_an_error(tmp_path: Path):
    store = QueuedStore(tmp_path / "store", 100)
    first = min(store.writer.directory.iterdir())
    for options in ({}, {"subscribe": "Refunds"}):
        reader, parts = parts_of({"a": store}, options)
        whole = first.read_bytes()
        first.write_bytes(whole[:5_000])
        with pytest.raises(StoreError, match=f"{first} became shorter while it was read, 5000 bytes instead of 16384"):
            list(reader.read(parts[0]))
        first.write_bytes(whole)


def test_queues_that_are_removed_after_planning_hide_nothing(tmp_path: Path):
    store = {"a": QueuedStore(tmp_path / "store", COUNT)}
    options = {"subscribe": "Refunds", "endingOffsets": {"a": {"Refunds": {"1": 3}}}}
    reader, parts = parts_of(store, options)
    assert any(part.part.entries for part in parts)
    shutil.rmtree(store["a"].root / "consumequeue" / "Refunds")
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert rows == filtered(store, options)
