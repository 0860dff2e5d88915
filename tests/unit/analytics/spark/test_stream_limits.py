"""Limits of micro-batches: messages, bytes and the least number that is waited for."""

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from rocketbroker.analytics.log.message_reader import walk_split
from rocketbroker.analytics.spark import read_options, stream_reader
from rocketbroker.analytics.spark.stream_reader import StreamPartition
from tests.support.checkpointed_query import COLUMNS, Query
from tests.support.commit_log_writer import overwrite
from tests.support.queued_store import QueuedStore


@pytest.fixture
def store(tmp_path: Path) -> QueuedStore:
    return QueuedStore(tmp_path / "store", 200)


class Clock:
    """Time that passes only while a reader sleeps, or when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(read_options, "monotonic", lambda: self.now)
        monkeypatch.setattr(read_options, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize("most", [7, 64, 200, 1000])
def test_a_batch_has_as_many_messages_as_it_may(store: QueuedStore, most: int):
    query = Query(store.root, maxOffsetsPerTrigger=str(most))
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(most)
    sizes, before = [], 0
    while query.trigger():
        sizes.append(len(query.rows) - before)
        before = len(query.rows)
    assert sizes == [most] * (200 // most) + [200 % most] * (200 % most > 0)
    assert query.rows == [{name: row[name] for name in COLUMNS} for row in store.rows]


def test_messages_of_the_log_count_whatever_is_selected(store: QueuedStore):
    query = Query(store.root, maxOffsetsPerTrigger="50", subscribe="Orders")
    batches = 0
    while query.trigger():
        batches += 1
    assert batches == 4
    assert len(query.rows) == sum(row["topic"] == "Orders" for row in store.rows)


def test_damage_is_no_message(store: QueuedStore):
    path, position, _ = store.writer.records[3]
    overwrite(path, position + 4, b"????")
    query = Query(store.root, maxOffsetsPerTrigger="5")
    query.trigger()
    assert [row["physical_offset"] for row in query.rows] == [
        int(path.name) + position for number, (path, position, _) in enumerate(store.writer.records[:6]) if number != 3
    ]
    assert len(query.run()) == 199


def test_brokers_share_the_messages_of_a_batch(store: QueuedStore, tmp_path: Path):
    other = QueuedStore(tmp_path / "other", 20, seed=2)
    query = Query(f"a={store.root},b={other.root}", maxOffsetsPerTrigger="60")
    query.trigger()
    ends = [query.progress[broker]["offset"] for broker in ("a", "b")]
    assert ends == [store.rows[40]["physical_offset"], other.writer.end]
    assert len(query.run()) == 220


@pytest.mark.parametrize(("messages", "most_bytes"), [("10", "1m"), ("1000", "2500"), ("7", "1400")])
def test_the_smaller_of_both_maxima_applies(store: QueuedStore, messages: str, most_bytes: str):
    ends = []
    for options in ({"maxOffsetsPerTrigger": messages}, {"maxBytesPerTrigger": most_bytes}):
        query = Query(store.root, **options)
        query.trigger()
        ends.append(query.progress["store"]["offset"])
    both = Query(store.root, maxOffsetsPerTrigger=messages, maxBytesPerTrigger=most_bytes)
    both.trigger()
    assert both.progress["store"]["offset"] == min(ends)
    assert len(both.run()) == 200


def test_a_batch_waits_for_the_minimum_or_the_delay(store: QueuedStore, clock: Clock):
    query = Query(store.root, minOffsetsPerTrigger="201", maxTriggerDelay="20s")
    assert query.reader.getDefaultReadLimit() == ReadMinRows(201)
    assert query.trigger(), "the first one does not wait"
    store.append(200)
    assert not query.trigger()
    store.append(1)
    assert query.trigger()
    assert len(query.rows) == 401
    store.append(3)
    clock.now += 19.9
    assert not query.trigger()
    store.append(1)
    clock.now += 0.2
    assert query.trigger()
    assert len(query.rows) == 405
    clock.now += 60
    assert not query.trigger()
    store.append(1)
    assert query.trigger()
    assert not query.trigger()


def test_an_idle_stream_is_polled_every_100_ms(store: QueuedStore, clock: Clock):
    query = Query(store.root)
    assert query.trigger()
    for _ in range(5):
        assert not query.trigger()
    assert clock.now == pytest.approx(0.4)
    store.append(1)
    assert query.trigger()
    before = clock.now
    store.append(1)
    assert query.trigger()
    assert clock.now == before, "a stream that has messages does not wait"


def test_the_minimum_counts_all_brokers_and_goes_with_a_maximum(store: QueuedStore, tmp_path: Path, clock: Clock):
    other = QueuedStore(tmp_path / "other", 20, seed=2)
    options = {"minOffsetsPerTrigger": "221", "maxOffsetsPerTrigger": "221", "maxBytesPerTrigger": "9k"}
    query = Query(f"a={store.root},b={other.root}", startingOffsets="latest", **options)
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(9 << 10)
    store.append(1)
    assert query.trigger()
    store.append(200)
    other.append(20)
    assert not query.trigger()
    other.append(1)
    assert query.trigger()
    assert 1 < len(query.rows) < 222
    assert not query.trigger()
    clock.now += 900
    assert query.trigger()


def test_all_that_is_available_now_waits_for_nothing(store: QueuedStore):
    query = Query(store.root, minOffsetsPerTrigger="1000")
    end = query.reader.latestOffset(query.progress, ReadAllAvailable())
    assert end["store"]["offset"] == store.writer.end
    query.reader.prepareForTriggerAvailableNow()
    assert len(query.run()) == 200


def test_a_waiting_batch_counts_only_what_is_new(store: QueuedStore, monkeypatch: pytest.MonkeyPatch):
    query = Query(store.root, minOffsetsPerTrigger="1000")
    assert query.trigger()
    store.append(100)
    assert not query.trigger()
    before = store.writer.end
    walked: list[int] = []

    def walk(split, report):
        walked.append(split.file.base + split.low)
        return walk_split(split, report)

    monkeypatch.setattr(stream_reader, "walk_split", walk)
    assert not query.trigger()
    assert walked == []
    store.append(5)
    assert not query.trigger()
    assert walked
    assert min(walked) >= before


def test_a_batch_has_the_least_number_of_tasks(store: QueuedStore):
    query = Query(store.root, splitSize="1g", minPartitions="37")
    end = query.reader.latestOffset(query.progress, ReadAllAvailable())
    parts = query.reader.partitions(query.progress, end)
    assert len(parts) >= 37
    assert all(isinstance(part, StreamPartition) for part in parts)
    assert len(query.run()) == 200
