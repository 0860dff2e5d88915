"""The streaming reader as Spark uses it, without Spark: progress goes through JSON, batches may be planned again."""

import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files import commit_log_files, store_files
from rocketbroker.analytics.files.store_names import store_roots
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.spark import stream_reader
from rocketbroker.analytics.spark.rocketmq_store import RocketMQStore
from rocketbroker.analytics.spark.source_options import encode_selection, source_options
from rocketbroker.analytics.spark.stream_reader import LogProgress, MessageStreamReader, fair_shares
from rocketbroker.common import local_file
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.checkpointed_query import COLUMNS, SCHEMA, Query, through_json
from tests.support.commit_log_writer import CommitLogWriter, overwrite
from tests.support.slow_store_reader import slow_rows

GOES_ON = "Once the cause is gone, start the query again: it resumes from its checkpoint."


@pytest.fixture
def writer(tmp_path):
    made = CommitLogWriter(tmp_path, file_size=1 << 14)
    made.append_many(150)
    return made


def progress(writer):
    (root,) = store_roots(writer.root)
    return LogProgress(root)


def begins(writer):
    return [int(path.name) + position for path, position, _ in writer.records]


def test_an_empty_log_is_at_its_begin(tmp_path):
    log = progress(CommitLogWriter(tmp_path))
    assert (log.begin, log.written_end, log.end(), log.name_at(0)) == (0, 0, 0, "")


def test_the_end_is_behind_the_last_whole_record(writer):
    log = progress(writer)
    assert log.begin == 0
    for start in (0, begins(writer)[3], begins(writer)[-1], writer.end):
        assert log.end(start) == writer.end


def test_a_record_that_is_being_written_does_not_count(writer):
    path, position, size = writer.records[-1]
    whole = path.read_bytes()
    for written in range(size):
        path.write_bytes(whole[: position + written].ljust(writer.file_size, b"\0"))
        assert progress(writer).end(begins(writer)[-5]) == begins(writer)[-1], written
    path.write_bytes(whole)
    assert progress(writer).end() == writer.end


def test_a_record_without_properties_ends_in_zeros_that_are_its_own(tmp_path):
    writer = CommitLogWriter(tmp_path)
    writer.append(b"x", b"T", b"")
    log = progress(writer)
    assert log.end() == writer.end
    assert log.written_end >= writer.end


def test_damage_within_the_log_is_passed(writer):
    path, position, _ = writer.records[-10]
    overwrite(path, position + 4, b"????")
    assert progress(writer).end(begins(writer)[-20]) == writer.end


def test_damage_at_the_end_is_not_passed(writer):
    path, position, _ = writer.records[-1]
    overwrite(path, position + 4, b"????")
    assert progress(writer).end() == begins(writer)[-1]


def test_files_before_the_last_one_are_full(tmp_path):
    writer = CommitLogWriter(tmp_path, file_size=1 << 12)
    writer.append_many(40)
    last = int(writer.records[-1][0].name)
    first_of_last = begins(writer).index(last)
    path, _, size = writer.records[first_of_last]
    path.write_bytes(path.read_bytes()[: size - 10].ljust(writer.file_size, b"\0"))
    assert last > 0
    assert progress(writer).end(0) == last


@pytest.mark.parametrize("most_bytes", [1, 700, 5_000, 1 << 14, 40_000, 1 << 40])
def test_steps_end_where_records_begin_and_reach_the_end(writer, most_bytes):
    log = progress(writer)
    end, at, longest = log.end(), 0, max(size for *_, size in writer.records)
    ends = (begin + size for begin, (*_, size) in zip(begins(writer), writer.records, strict=True))
    possible = {*begins(writer), *ends, *(file.base for file in log.files)}
    while at < end:
        after = log.within(at, end, most_bytes)
        assert at < after <= end
        assert after in possible
        assert after - at <= max(most_bytes, longest)
        at = after
    assert log.within(at, end, most_bytes) == end


def test_steps_pass_a_file_of_nothing_but_damage(writer):
    name = sorted(writer.directory.iterdir())[1]
    name.write_bytes(b"?" * writer.file_size)
    log = progress(writer)
    at, steps = 0, 0
    while at < log.end():
        at, steps = log.within(at, log.end(), 3_000), steps + 1
        assert steps < 200
    assert at == writer.end


def test_names_are_those_of_the_files(writer):
    log = progress(writer)
    assert log.name_at(0) == "0" * 20
    assert log.name_at((1 << 14) + 5) == f"{1 << 14:020d}"
    assert log.name_at(1 << 40) == log.files[-1].name.rpartition("/")[2]


def expected(log_writer: CommitLogWriter) -> list[dict[str, Any]]:
    return [{name: row[name] for name in COLUMNS} for row in slow_rows(log_writer.directory)]


def bodies(log_writer: CommitLogWriter) -> list[bytes]:
    return [row["body"] for row in slow_rows(log_writer.directory)]


@pytest.fixture
def log_writer(tmp_path: Path) -> CommitLogWriter:
    return CommitLogWriter(tmp_path / "store", file_size=1 << 14)


@pytest.mark.parametrize("most_bytes", ["1", "2000", "16384", "50000", ""])
def test_each_message_comes_once_over_rolls_and_restarts(log_writer, most_bytes):
    chance = random.Random(3)
    query = Query(log_writer.root, **({"maxBytesPerTrigger": most_bytes} if most_bytes else {}))
    assert not query.trigger()
    for seed in range(12):
        log_writer.append_many(chance.randrange(30), seed)
        for _ in range(chance.randrange(4)):
            query.trigger(again=chance.random() < 0.5)
        if chance.random() < 0.5:
            query.restart()
    assert query.run() == expected(log_writer)
    assert len(list(log_writer.directory.iterdir())) > 2
    mark = LogProgress(StoreRoot("store", str(log_writer.root))).mark(log_writer.end)
    assert query.progress == {"store": {"offset": log_writer.end, "file": log_writer.records[-1][0].name, "mark": mark}}


def test_a_log_that_appears_byte_by_byte_is_read_as_its_records_are_whole(log_writer, tmp_path):
    log_writer.append_many(60)
    live = tmp_path / "live" / "commitlog"
    live.mkdir(parents=True)
    query, whole = Query(live.parent), expected(log_writer)
    for path in sorted(log_writer.directory.iterdir()):
        final = path.read_bytes()
        (live / path.name).write_bytes(bytes(len(final)))
        for at in range(0, len(final), 97):
            overwrite(live / path.name, at, final[at : at + 97])
            query.trigger()
            assert query.rows == whole[: len(query.rows)]
    assert query.run() == whole


def test_a_writer_at_work_is_followed(log_writer):
    query, stop = Query(log_writer.root, maxBytesPerTrigger="4000"), threading.Event()

    def write() -> None:
        for seed in range(40):
            log_writer.append_many(10, seed)
        stop.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        while not stop.is_set():
            query.trigger()
    finally:
        thread.join()
    assert query.run() == expected(log_writer)


def test_a_batch_takes_no_more_than_it_may(log_writer):
    log_writer.append_many(200)
    query = Query(log_writer.root, maxBytesPerTrigger="3000")
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(3000)
    before = 0
    while query.trigger():
        offset = query.progress["store"]["offset"]
        assert 0 < offset - before <= 3000
        before = offset
    everything = query.reader.latestOffset({"store": {"offset": 0, "file": ""}}, ReadAllAvailable())
    assert everything["store"]["offset"] == log_writer.end
    with pytest.raises(ConfigError, match=r"ReadMaxRows\(max_rows=5\) is not supported; use maxOffsets"):
        query.reader.latestOffset(query.progress, ReadMaxRows(5))


def test_what_is_available_now_ends_where_it_was_at_the_begin(log_writer):
    log_writer.append_many(50)
    query = Query(log_writer.root, maxBytesPerTrigger="3000")
    query.reader.prepareForTriggerAvailableNow()
    then = expected(log_writer)
    log_writer.append_many(50)
    assert query.run() == then
    reported = query.reader.reportLatestOffset()
    assert reported
    assert reported["store"]["offset"] == log_writer.end
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    assert query.run() == expected(log_writer)


def test_a_query_may_begin_with_what_comes(log_writer):
    log_writer.append_many(50)
    before = len(expected(log_writer))
    query = Query(log_writer.root, startingOffsets="latest")
    assert not query.trigger()
    log_writer.append_many(20, 2)
    assert query.run() == expected(log_writer)[before:]


def test_damage_is_passed_and_rows_around_it_come_once(log_writer):
    log_writer.append_many(120)
    whole = expected(log_writer)
    for number in (5, 40, 41, 90):
        path, position, _ = log_writer.records[number]
        overwrite(path, position + 4, b"????")
    for most_bytes in ("1", "1500", "100000"):
        query = Query(log_writer.root, maxBytesPerTrigger=most_bytes)
        assert query.run() == [row for number, row in enumerate(whole) if number not in {5, 40, 41, 90}]


def test_damage_where_a_batch_begins_is_reported(log_writer, caplog):
    log_writer.append_many(10)
    query = Query(log_writer.root)
    query.run()
    log_writer.append_many(10, seed=2)
    whole = expected(log_writer)
    path, position, size = log_writer.records[10]
    overwrite(path, position + 4, b"????")
    assert query.run() == [row for number, row in enumerate(whole) if number != 10]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: no readable record in {size} bytes from position {position}; skipped"
    ]


def test_a_body_with_a_wrong_checksum_is_a_row_as_it_is_elsewhere(log_writer):
    log_writer.append_many(60)
    path, position, _ = log_writer.records[
        next(n for n in range(20, 60) if n % 11 != 5 and n % 13 != 7 and len(bodies(log_writer)[n]) > 60)
    ]
    overwrite(path, position + 95, b"????????")
    for most_bytes in ("1", "1500", "100000"):
        assert Query(log_writer.root, maxBytesPerTrigger=most_bytes).run() == expected(log_writer)


def test_files_removed_before_they_were_read_end_the_query_or_are_a_told_gap(log_writer, caplog):
    log_writer.append_many(40)
    query, tolerant = Query(log_writer.root), Query(log_writer.root, failOnDataLoss="false")
    query.trigger()
    tolerant.trigger()
    read = len(query.rows)
    log_writer.append_many(200, 2)
    first_left = sorted(log_writer.directory.iterdir())[2]
    for path in sorted(log_writer.directory.iterdir())[:2]:
        path.unlink()
    message = (
        rf"the log of broker store \({log_writer.root}\) begins at {int(first_left.name)}: offsets \d+ to "
        rf"{int(first_left.name)} were removed before they were read; set the option failOnDataLoss=false"
    )
    with pytest.raises(StoreError, match=message) as raised:
        query.trigger()
    assert not hasattr(raised.value, "__notes__")
    with pytest.raises(StoreError, match=message):
        query.reader.partitions(query.progress, {"store": {"offset": log_writer.end, "file": ""}})
    rows = tolerant.run()
    left = expected(log_writer)
    assert rows[read:] == left
    assert "were removed before they were read; the query continues after them" in caplog.text


def test_a_file_removed_between_planning_and_reading_likewise(log_writer, caplog):
    log_writer.append_many(200)
    for fail in ("true", "false"):
        query = Query(log_writer.root, failOnDataLoss=fail)
        end = query.reader.latestOffset(query.progress, ReadAllAvailable())
        parts = query.reader.partitions(query.progress, end)
        first, hidden = log_writer.directory / ("0" * 20), log_writer.root / "hidden"
        first.rename(hidden)
        if fail == "true":
            with pytest.raises(StoreError, match=f"cannot read the commit-log file {first}: No such file") as raised:
                list(query.reader.read(parts[0]))
            assert raised.value.__notes__ == [GOES_ON]
        else:
            assert list(query.reader.read(parts[0])) == []
            assert f"{first}: No such file" in caplog.text
            assert "are skipped (failOnDataLoss=false)" in caplog.text
        hidden.rename(first)


def test_a_file_missing_between_others_is_loss_where_it_was_not_read(log_writer):
    log_writer.append_many(300)
    middle = sorted(log_writer.directory.iterdir())[2]
    query = Query(log_writer.root, maxBytesPerTrigger="20000")
    query.trigger()
    middle.rename(log_writer.root / "hidden")
    query.restart_with(log_writer.root)
    with pytest.raises(
        StoreError, match=f"has no file for offsets {int(middle.name)} to {int(middle.name) + (1 << 14)}"
    ):
        query.run()
    (log_writer.root / "hidden").rename(middle)
    assert query.run() == expected(log_writer)


def test_a_log_that_ends_before_the_progress_is_rejected(log_writer):
    log_writer.append_many(100)
    query = Query(log_writer.root, failOnDataLoss="false")
    query.run()
    for path in sorted(log_writer.directory.iterdir())[1:]:
        path.unlink()
    with pytest.raises(
        StoreError, match=r"ends at \d+, before offset \d+ that the query has reached: the log was"
    ) as raised:
        query.trigger()
    assert not hasattr(raised.value, "__notes__"), "this checkpoint is of no more use"


def cut(log_writer: CommitLogWriter, left: int) -> None:
    """As a recovery after a power loss: the last records are gone, and others come in their place."""
    path, position, _ = log_writer.records[left]
    overwrite(path, position, bytes((1 << 14) - position))
    del log_writer.records[left:]
    log_writer.end = int(path.name) + position


def test_a_log_that_was_cut_and_rewritten_is_not_taken_for_the_one_that_was_read(log_writer, caplog):
    log_writer.append_many(20)
    query, tolerant, old = (Query(log_writer.root, failOnDataLoss=fail) for fail in ("true", "false", "false"))
    for each in (query, tolerant, old):
        each.trigger()
        each.restart()
    del old.progress["store"]["mark"]  # as written before there was one
    cut(log_writer, 15)
    log_writer.append_many(40, seed=9)
    text = rf"has changed before offset {query.progress['store']['offset']} since the query read it: it was truncated"
    with pytest.raises(StoreError, match=text):
        query.trigger()
    assert "other bytes" not in caplog.text
    assert old.trigger()
    assert "other bytes" not in caplog.text
    assert tolerant.trigger()
    assert "or is that of another store; records there were not read; the query continues after" in caplog.text
    caplog.clear()
    log_writer.append_many(5, seed=3)
    assert tolerant.trigger()
    assert "other bytes" not in caplog.text


def test_the_checkpoint_of_another_store_is_rejected(log_writer, tmp_path):
    log_writer.append_many(20)
    query = Query(f"a={log_writer.root}")
    query.run()
    other = CommitLogWriter(tmp_path / "other", file_size=1 << 14)
    other.append_many(40, seed=9)
    query.restart_with(f"a={other.root}")
    with pytest.raises(StoreError, match=r"the log of broker a .* it was truncated .* or is that of another store"):
        query.trigger()


def test_a_batch_planned_again_on_a_truncated_log_is_rejected(log_writer):
    log_writer.append_many(10)
    query = Query(log_writer.root)
    query.trigger()
    log_writer.append_many(10, seed=2)
    end = through_json(query.reader.latestOffset(query.progress, ReadAllAvailable()))
    cut(log_writer, 15)
    log_writer.append_many(40, seed=9)
    query.restart()
    with pytest.raises(StoreError, match="it was truncated and written again"):
        query.reader.partitions(query.progress, end)


def test_what_lies_before_a_progress_may_be_removed_once_it_is_read(log_writer):
    log_writer.append_many(200)
    first_of_last = next(n for n, record in enumerate(log_writer.records) if record[0] == log_writer.records[-1][0])
    query = Query(log_writer.root)
    end = {"offset": int(log_writer.records[first_of_last][0].name), "file": "", "mark": "00000000"}
    for path in sorted(log_writer.directory.iterdir())[:-1]:
        path.unlink()
    query.progress = {"store": end}
    assert query.run() == expected(log_writer)


def test_a_selection_holds_for_a_stream(log_writer):
    log_writer.append_many(100)
    chosen = encode_selection(Selection(topics={"Topic3"}, queue_ids={1, 2}, queue_offsets=(3, 20)))
    query = Query(log_writer.root, selection=chosen, maxBytesPerTrigger="5000")
    wanted = [
        row
        for row in expected(log_writer)
        if row["topic"] == "Topic3" and row["queue_id"] in {1, 2} and 3 <= row["queue_offset"] < 20
    ]
    assert query.run() == wanted
    assert 0 < len(wanted) < 100


def test_stores_are_followed_side_by_side_and_may_be_added_but_not_taken_away(log_writer, tmp_path):
    other = CommitLogWriter(tmp_path / "other", file_size=1 << 14)
    log_writer.append_many(30)
    query = Query(f"a={log_writer.root}")
    query.run()
    other.append_many(30, 2)
    query.restart_with(f"a={log_writer.root},b={other.root}", maxBytesPerTrigger="2000")
    log_writer.append_many(10, 3)
    rows = query.run()
    assert sorted(rows, key=str) == sorted(expected(log_writer) + expected(other), key=str)
    query.restart_with(f"b={other.root}")
    with pytest.raises(StoreError, match="the query's checkpoint contains the brokers a, but the query reads only"):
        query.trigger()


def test_only_messages_are_streamed(log_writer):
    options = source_options({"path": str(log_writer.root), "table": "topics"})
    with pytest.raises(ConfigError, match="table topics cannot be streamed, only messages; read it with"):
        MessageStreamReader(options, SCHEMA)
    with pytest.raises(ConfigError, match="table messages has no column 'offset'"):
        MessageStreamReader(source_options({"path": str(log_writer.root)}), pa.schema([("offset", pa.int64())]))


@pytest.mark.parametrize(
    ("backlogs", "limit", "shares"),
    [
        ({"a": 0, "b": 100}, 60, {"a": 0, "b": 60}),
        ({"a": 100, "b": 100}, 60, {"a": 30, "b": 30}),
        ({"a": 10, "b": 100, "c": 100}, 60, {"a": 10, "b": 25, "c": 25}),
        ({"a": 5, "b": 5}, 1, {"a": 1, "b": 1}),
        ({"a": 5, "b": 5}, 100, {"a": 5, "b": 5}),
    ],
)
def test_a_broker_that_is_read_leaves_its_share_to_the_others(backlogs, limit, shares):
    assert fair_shares(backlogs, limit) == shares


def test_an_added_broker_whose_first_files_are_gone_is_read_from_its_begin(log_writer, tmp_path):
    other = CommitLogWriter(tmp_path / "other", file_size=1 << 14)
    log_writer.append_many(10)
    query = Query(f"a={log_writer.root}")
    query.run()
    other.append_many(150, 2)
    first, *later = sorted(other.directory.iterdir())
    assert len(later) > 1
    first.unlink()
    query.restart_with(f"a={log_writer.root},b={other.root}", maxBytesPerTrigger="2000")
    assert query.trigger()
    begin, end = int(later[0].name), query.progress["b"]["offset"]
    assert begin < end <= begin + 2000
    assert sorted(query.run(), key=str) == sorted(expected(log_writer) + expected(other), key=str)


def test_a_poll_reads_no_file_that_is_read_already(log_writer, monkeypatch):
    log_writer.append_many(300)
    query = Query(log_writer.root)
    assert query.trigger()
    measured: list[str] = []

    def measure(base, path):
        measured.append(path.name)
        return local_file.measure(base, path)

    monkeypatch.setattr(commit_log_files, "measure", measure)
    assert not query.trigger()
    files = sorted(path.name for path in log_writer.directory.iterdir())
    assert len(files) > 3
    assert measured == files[-1:]


@pytest.mark.long
def test_a_store_of_5000_files_is_planned_and_polled_by_reading_its_end(tmp_path, monkeypatch):
    size, count = 1 << 20, 5_000
    writer = CommitLogWriter(tmp_path, file_size=size, end=(count - 1) * size)
    writer.append_many(10)
    for number in range(count - 1):
        with (writer.directory / f"{number * size:020d}").open("wb") as file:
            file.truncate(size)
    (writer.directory / f"{count * size:020d}").write_bytes(bytes(size))  # as a broker allocates it ahead
    read: list[str] = []

    def measure(base, path):
        read.append(path.name)
        return local_file.measure(base, path)

    def open_file(folder, path, what="file"):
        read.append(path)
        return original(folder, path, what)

    original = store_files.LocalFolder.open
    monkeypatch.setattr(commit_log_files, "measure", measure)
    monkeypatch.setattr(store_files.LocalFolder, "open", open_file)
    source = RocketMQStore({"path": str(tmp_path)})
    assert len(source.reader(source.schema()).partitions()) == count
    assert len(read) <= 3, "the end of the log, and files of the store that are no log"
    read.clear()
    query = Query(tmp_path, splitSize="64m")
    assert len(read) <= 3
    for _ in range(2):
        read.clear()
        end = query.reader.latestOffset(query.progress, ReadAllAvailable())
        assert len(read) <= 6, "a poll whose backlog is the whole log"
        assert end[tmp_path.name]["offset"] == writer.end
    read.clear()
    assert len(query.reader.partitions(query.progress, through_json(end))) == count
    assert len(read) <= 6


def test_a_poll_goes_on_where_the_last_one_ended(log_writer, monkeypatch):
    log_writer.append_many(100)
    query = Query(log_writer.root, maxBytesPerTrigger="3000")
    query.reader.latestOffset(query.progress, ReadMaxBytes(3000))
    looked: list[int] = []

    def look(file, start, high):
        looked.append(start)
        return original(file, start, high)

    original = stream_reader._look
    monkeypatch.setattr(stream_reader, "_look", look)
    end = log_writer.end
    query.reader.latestOffset(query.progress, ReadMaxBytes(3000))
    assert looked[0] == end


def test_a_log_that_was_cut_at_the_begin_of_a_file_is_noticed(log_writer):
    log_writer.append_many(150)
    query = Query(log_writer.root)
    files = sorted(log_writer.directory.iterdir())
    boundary = int(files[1].name)
    mark = LogProgress(StoreRoot("store", str(log_writer.root))).mark(boundary)
    query.progress = {"store": {"offset": boundary, "file": files[0].name, "mark": mark}}
    for later in files[1:]:
        later.unlink()
    whole = files[0].read_bytes()
    files[0].write_bytes(whole[:2000].ljust(len(whole), b"\0"))
    with pytest.raises(StoreError, match=f"before offset {boundary} that the query has reached"):
        query.reader.latestOffset(query.progress, ReadAllAvailable())


def test_an_end_that_the_log_has_lost_is_forgotten(log_writer):
    log_writer.append_many(100)
    query = Query(log_writer.root)
    query.reader.latestOffset(query.progress, ReadAllAvailable())
    path, position, size = log_writer.records[-1]
    whole = bytearray(path.read_bytes())
    whole[position : position + size] = bytes(size)
    path.write_bytes(whole)
    end = query.reader.latestOffset(query.progress, ReadAllAvailable())
    assert end["store"]["offset"] == int(path.name) + position
