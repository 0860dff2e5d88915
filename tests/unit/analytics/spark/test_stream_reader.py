"""The streaming reader as Spark uses it, without Spark: progress goes through JSON, batches may be planned again."""

import json
import pickle
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.log_progress import LogProgress
from rocketbroker.analytics.spark.source_options import encode_selection, source_options
from rocketbroker.analytics.spark.stream_reader import MessageStreamReader
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.commit_log_writer import CommitLogWriter, overwrite
from tests.support.slow_store_reader import slow_rows

COLUMNS = ("topic", "queue_id", "queue_offset", "physical_offset", "body", "keys")
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("body", pa.binary()),
        ("keys", pa.string()),
    ]
)


class Query:
    """A query with a checkpoint: each batch is planned, read, and sometimes planned and read again."""

    def __init__(self, stores: Path | str, **options: str) -> None:
        self.options = source_options({"path": str(stores), "splitSize": "3000", **options})
        self.rows: list[dict[str, Any]] = []
        self.reader: MessageStreamReader
        self.restart()
        self.progress: dict[str, Any] = _json(self.reader.initialOffset())

    def restart(self) -> None:
        """As a query that is started again: nothing is left but the checkpoint."""
        self.reader = MessageStreamReader(pickle.loads(pickle.dumps(self.options)), SCHEMA)

    def trigger(self, *, again: bool = False) -> bool:
        """Run a micro-batch; false when there is nothing new."""
        end = _json(self.reader.latestOffset(self.progress, self.reader.getDefaultReadLimit()))
        if end == self.progress:
            return False
        rows = list(self._batch(end))
        if again:
            self.restart()
            assert list(self._batch(end)) == rows
        self.rows += rows
        self.reader.commit(end)
        self.progress = end
        return True

    def run(self) -> list[dict[str, Any]]:
        """Run until there is nothing new; all rows so far."""
        while self.trigger():
            pass
        return self.rows

    def _batch(self, end: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for part in self.reader.partitions(self.progress, end):
            for batch in self.reader.read(pickle.loads(pickle.dumps(part))):
                assert batch.schema.equals(SCHEMA)
                yield from batch.to_pylist()


def _json(progress: Any) -> Any:
    return json.loads(json.dumps(progress))


def expected(writer: CommitLogWriter) -> list[dict[str, Any]]:
    return [{name: row[name] for name in COLUMNS} for row in slow_rows(writer.directory)]


def bodies(writer: CommitLogWriter) -> list[bytes]:
    return [row["body"] for row in slow_rows(writer.directory)]


@pytest.fixture
def writer(tmp_path: Path) -> CommitLogWriter:
    return CommitLogWriter(tmp_path / "store", file_size=1 << 14)


@pytest.mark.parametrize("most_bytes", ["1", "2000", "16384", "50000", ""])
def test_each_message_comes_once_over_rolls_and_restarts(writer, most_bytes):
    chance = random.Random(3)
    query = Query(writer.root, **({"maxBytesPerTrigger": most_bytes} if most_bytes else {}))
    assert not query.trigger()
    for seed in range(12):
        writer.append_many(chance.randrange(30), seed)
        for _ in range(chance.randrange(4)):
            query.trigger(again=chance.random() < 0.5)
        if chance.random() < 0.5:
            query.restart()
    assert query.run() == expected(writer)
    assert len(list(writer.directory.iterdir())) > 2
    mark = LogProgress(StoreRoot("store", str(writer.root))).mark(writer.end)
    assert query.progress == {"store": {"offset": writer.end, "file": writer.records[-1][0].name, "mark": mark}}


def test_a_log_that_appears_byte_by_byte_is_read_as_its_records_are_whole(writer, tmp_path):
    writer.append_many(60)
    live = tmp_path / "live" / "commitlog"
    live.mkdir(parents=True)
    query, whole = Query(live.parent), expected(writer)
    for path in sorted(writer.directory.iterdir()):
        final = path.read_bytes()
        (live / path.name).write_bytes(bytes(len(final)))
        for at in range(0, len(final), 97):
            overwrite(live / path.name, at, final[at : at + 97])
            query.trigger()
            assert query.rows == whole[: len(query.rows)]
    assert query.run() == whole


def test_a_writer_at_work_is_followed(writer):
    query, stop = Query(writer.root, maxBytesPerTrigger="4000"), threading.Event()

    def write() -> None:
        for seed in range(40):
            writer.append_many(10, seed)
        stop.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        while not stop.is_set():
            query.trigger()
    finally:
        thread.join()
    assert query.run() == expected(writer)


def test_a_batch_takes_no_more_than_it_may(writer):
    writer.append_many(200)
    query = Query(writer.root, maxBytesPerTrigger="3000")
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(3000)
    before = 0
    while query.trigger():
        offset = query.progress["store"]["offset"]
        assert 0 < offset - before <= 3000
        before = offset
    everything = query.reader.latestOffset({"store": {"offset": 0, "file": ""}}, ReadAllAvailable())
    assert everything["store"]["offset"] == writer.end
    with pytest.raises(ConfigError, match="ReadMaxRows is not supported; use maxBytesPerTrigger"):
        query.reader.latestOffset(query.progress, ReadMaxRows(5))


def test_what_is_available_now_ends_where_it_was_at_the_begin(writer):
    writer.append_many(50)
    query = Query(writer.root, maxBytesPerTrigger="3000")
    query.reader.prepareForTriggerAvailableNow()
    then = expected(writer)
    writer.append_many(50)
    assert query.run() == then
    reported = query.reader.reportLatestOffset()
    assert reported
    assert reported["store"]["offset"] == writer.end
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    assert query.run() == expected(writer)


def test_a_query_may_begin_with_what_comes(writer):
    writer.append_many(50)
    before = len(expected(writer))
    query = Query(writer.root, startingOffsets="latest")
    assert not query.trigger()
    writer.append_many(20, 2)
    assert query.run() == expected(writer)[before:]


def test_damage_is_passed_and_rows_around_it_come_once(writer):
    writer.append_many(120)
    whole = expected(writer)
    for number in (5, 40, 41, 90):
        path, position, _ = writer.records[number]
        overwrite(path, position + 4, b"????")
    for most_bytes in ("1", "1500", "100000"):
        query = Query(writer.root, maxBytesPerTrigger=most_bytes)
        assert query.run() == [row for number, row in enumerate(whole) if number not in {5, 40, 41, 90}]


def test_damage_where_a_batch_begins_is_reported(writer, caplog):
    writer.append_many(10)
    query = Query(writer.root)
    query.run()
    writer.append_many(10, seed=2)
    whole = expected(writer)
    path, position, size = writer.records[10]
    overwrite(path, position + 4, b"????")
    assert query.run() == [row for number, row in enumerate(whole) if number != 10]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: no readable record in {size} bytes from position {position}; skipped"
    ]


def test_a_body_with_a_wrong_checksum_is_a_row_as_it_is_elsewhere(writer):
    writer.append_many(60)
    path, position, _ = writer.records[
        next(n for n in range(20, 60) if n % 11 != 5 and n % 13 != 7 and len(bodies(writer)[n]) > 60)
    ]
    overwrite(path, position + 95, b"????????")
    for most_bytes in ("1", "1500", "100000"):
        assert Query(writer.root, maxBytesPerTrigger=most_bytes).run() == expected(writer)


def test_files_removed_before_they_were_read_end_the_query_or_are_a_told_gap(writer, caplog):
    writer.append_many(40)
    query, tolerant = Query(writer.root), Query(writer.root, failOnDataLoss="false")
    query.trigger()
    tolerant.trigger()
    read = len(query.rows)
    writer.append_many(200, 2)
    first_left = sorted(writer.directory.iterdir())[2]
    for path in sorted(writer.directory.iterdir())[:2]:
        path.unlink()
    message = (
        rf"the log of broker store \({writer.root}\) begins at {int(first_left.name)}: offsets \d+ to "
        rf"{int(first_left.name)} were removed before they were read; set the option failOnDataLoss=false"
    )
    with pytest.raises(StoreError, match=message):
        query.trigger()
    with pytest.raises(StoreError, match=message):
        query.reader.partitions(query.progress, {"store": {"offset": writer.end, "file": ""}})
    rows = tolerant.run()
    left = expected(writer)
    assert rows[read:] == left
    assert "were removed before they were read; the query continues after them" in caplog.text


def test_a_file_removed_between_planning_and_reading_likewise(writer, caplog):
    writer.append_many(200)
    for fail in ("true", "false"):
        query = Query(writer.root, failOnDataLoss=fail)
        end = query.reader.latestOffset(query.progress, ReadAllAvailable())
        parts = query.reader.partitions(query.progress, end)
        first, hidden = writer.directory / ("0" * 20), writer.root / "hidden"
        first.rename(hidden)
        if fail == "true":
            with pytest.raises(StoreError, match=f"cannot read the commit-log file {first}: No such file"):
                list(query.reader.read(parts[0]))
        else:
            assert list(query.reader.read(parts[0])) == []
            assert f"{first}: No such file" in caplog.text
            assert "are skipped (failOnDataLoss=false)" in caplog.text
        hidden.rename(first)


def test_a_file_missing_between_others_is_loss_where_it_was_not_read(writer):
    writer.append_many(300)
    middle = sorted(writer.directory.iterdir())[2]
    query = Query(writer.root, maxBytesPerTrigger="20000")
    query.trigger()
    middle.rename(writer.root / "hidden")
    query.options = source_options({"path": str(writer.root)})
    query.restart()
    with pytest.raises(
        StoreError, match=f"has no file for offsets {int(middle.name)} to {int(middle.name) + (1 << 14)}"
    ):
        query.run()
    (writer.root / "hidden").rename(middle)
    assert query.run() == expected(writer)


def test_a_log_that_ends_before_the_progress_is_rejected(writer):
    writer.append_many(100)
    query = Query(writer.root, failOnDataLoss="false")
    query.run()
    for path in sorted(writer.directory.iterdir())[1:]:
        path.unlink()
    with pytest.raises(StoreError, match=r"ends at \d+, before offset \d+ that the query has reached: the log was"):
        query.trigger()


def cut(writer: CommitLogWriter, left: int) -> None:
    """As a recovery after a power loss: the last records are gone, and others come in their place."""
    path, position, _ = writer.records[left]
    overwrite(path, position, bytes((1 << 14) - position))
    del writer.records[left:]
    writer.end = int(path.name) + position


def test_a_log_that_was_cut_and_rewritten_is_not_taken_for_the_one_that_was_read(writer, caplog):
    writer.append_many(20)
    query, tolerant, old = (Query(writer.root, failOnDataLoss=fail) for fail in ("true", "false", "false"))
    for each in (query, tolerant, old):
        each.trigger()
        each.restart()
    del old.progress["store"]["mark"]  # as written before there was one
    cut(writer, 15)
    writer.append_many(40, seed=9)
    text = rf"has changed before offset {query.progress['store']['offset']} since the query read it: it was truncated"
    with pytest.raises(StoreError, match=text):
        query.trigger()
    assert "other bytes" not in caplog.text
    assert old.trigger()
    assert "other bytes" not in caplog.text
    assert tolerant.trigger()
    assert "written again, and its new records there were not read; the query continues after" in caplog.text
    caplog.clear()
    writer.append_many(5, seed=3)
    assert tolerant.trigger()
    assert "other bytes" not in caplog.text


def test_a_batch_planned_again_on_a_truncated_log_is_rejected(writer):
    writer.append_many(10)
    query = Query(writer.root)
    query.trigger()
    writer.append_many(10, seed=2)
    end = _json(query.reader.latestOffset(query.progress, ReadAllAvailable()))
    cut(writer, 15)
    writer.append_many(40, seed=9)
    query.restart()
    with pytest.raises(StoreError, match="it was truncated and written again"):
        query.reader.partitions(query.progress, end)


def test_what_lies_before_a_progress_may_be_removed_once_it_is_read(writer):
    writer.append_many(200)
    first_of_last = next(n for n, record in enumerate(writer.records) if record[0] == writer.records[-1][0])
    query = Query(writer.root)
    end = {"offset": int(writer.records[first_of_last][0].name), "file": "", "mark": "00000000"}
    for path in sorted(writer.directory.iterdir())[:-1]:
        path.unlink()
    query.progress = {"store": end}
    assert query.run() == expected(writer)


def test_a_selection_holds_for_a_stream(writer):
    writer.append_many(100)
    chosen = encode_selection(Selection(topics={"Topic3"}, queue_ids={1, 2}, queue_offsets=(3, 20)))
    query = Query(writer.root, selection=chosen, maxBytesPerTrigger="5000")
    wanted = [
        row
        for row in expected(writer)
        if row["topic"] == "Topic3" and row["queue_id"] in {1, 2} and 3 <= row["queue_offset"] < 20
    ]
    assert query.run() == wanted
    assert 0 < len(wanted) < 100


def test_stores_are_followed_side_by_side_and_may_be_added_but_not_taken_away(writer, tmp_path):
    other = CommitLogWriter(tmp_path / "other", file_size=1 << 14)
    writer.append_many(30)
    query = Query(f"a={writer.root}")
    query.run()
    other.append_many(30, 2)
    query.options = source_options({"path": f"a={writer.root},b={other.root}", "maxBytesPerTrigger": "2000"})
    query.restart()
    writer.append_many(10, 3)
    rows = query.run()
    assert sorted(rows, key=str) == sorted(expected(writer) + expected(other), key=str)
    query.options = source_options({"path": f"b={other.root}"})
    query.restart()
    with pytest.raises(StoreError, match="the query's checkpoint contains the brokers a, but the query reads only"):
        query.trigger()


def test_only_messages_are_streamed(writer):
    options = source_options({"path": str(writer.root), "table": "topics"})
    with pytest.raises(ConfigError, match="table topics cannot be streamed, only messages; read it with"):
        MessageStreamReader(options, SCHEMA)
    with pytest.raises(ConfigError, match="table messages has no column 'offset'"):
        MessageStreamReader(source_options({"path": str(writer.root)}), pa.schema([("offset", pa.int64())]))
