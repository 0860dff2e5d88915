"""Selections of topics and queues give the rows that filtering gives, read through the ConsumeQueues or not."""

import random
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketbroker.analytics import DecodeReport, Selection
from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from rocketbroker.analytics.columns.selection import Range
from rocketbroker.analytics.files.store_files import LocalFolder, StoreEntry
from rocketbroker.analytics.log import queue_plan, queue_proof
from rocketbroker.analytics.log.message_reader import read_split, read_store
from rocketbroker.analytics.log.queue_entries import EntryRange, QueueEntries, QueueNotWholeError, queued_records
from rocketbroker.analytics.log.split import Split, plan_splits
from tests.support import golden_store
from tests.support.commit_log_writer import V4_HOST, V6_HOST, CommitLogWriter, overwrite
from tests.support.consume_queue_writer import write_queues
from tests.support.slow_store_reader import slow_rows

SCHEMA_IN_MS = pa.schema([(f.name, pa.int64() if f.name.endswith("_timestamp") else f.type) for f in MESSAGE_SCHEMA])
TOPICS = [f"T{number}" for number in range(9)] + ["%RETRY%" + "g" * 140]
START_MS = 1_795_255_000_000
MARGIN = 20_000

Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def small_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read small stores through their queues."""
    monkeypatch.setattr(queue_plan, "_DISPATCH_MARGIN", MARGIN)
    monkeypatch.setattr(queue_proof, "STRETCH", MARGIN)


@pytest.mark.soak
def test_a_pattern_over_ten_thousand_topics_lists_each_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, writer = 10_000, CommitLogWriter(tmp_path, file_size=1 << 24)
    for number in range(3 * topics):
        # Most of the log is of another topic, so that it is not walked.
        topic, offset = (b"Topic%d" % (number // 3), 0) if number % 3 == 0 else (b"Other", number - number // 3 - 1)
        writer.append(b"x" * 100, topic, queue_offset=offset)
    rows = slow_rows(writer.directory)
    write_queues(tmp_path, rows)
    listed: list[str] = []

    def entries(folder: LocalFolder, path: str = "") -> list[StoreEntry]:
        listed.append(path)
        return original(folder, path)

    original = LocalFolder.entries
    monkeypatch.setattr(LocalFolder, "entries", entries)
    selection = Selection(topic_pattern="Topic.*")
    splits = plan_splits(tmp_path, selection=selection)
    assert sum(len(split.entries) for split in splits) > topics * 0.9, "most topics are read through their queues"
    assert len(listed) < 5 * topics
    monkeypatch.undo()
    found = sum(batch.num_rows for batch in read_store(tmp_path, ["topic"], selection=selection))
    assert found == topics


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    root = tmp_path_factory.mktemp("made")
    writer, chance, counts = CommitLogWriter(root, file_size=1 << 17), random.Random(7), dict[tuple[str, int], int]()
    for number in range(1_500):
        queue = chance.choice(TOPICS), chance.randrange(3)
        counts[queue] = counts.get(queue, -1) + 1
        writer.append(
            chance.randbytes(chance.randrange(500)),
            queue[0].encode(),
            f"TAGS\x01t{number % 3}\x02UNIQ_KEY\x01U{number}\x02".encode(),
            born_host=V6_HOST if number % 5 == 0 else V4_HOST,
            queue_id=queue[1],
            queue_offset=counts[queue],
            store_timestamp=START_MS + number * 500,
        )
    rows = slow_rows(writer.directory)
    write_queues(root, rows)
    return root, rows


def read(
    root: Path, selection: Selection, split_size: int = 1 << 26, report: DecodeReport | None = None
) -> tuple[Rows, list[Split]]:
    splits = plan_splits(root, split_size, selection)
    found = DecodeReport() if report is None else report
    batches = [batch for each in splits for batch in read_split(each, SCHEMA_IN_MS, found, selection=selection)]
    rows = pa.Table.from_batches(batches, SCHEMA_IN_MS).to_pylist()
    return [row | {"properties": dict(row["properties"])} for row in rows], splits


def within(number: int, bounds: Range | None) -> bool:
    low, high = bounds or (None, None)
    return (low is None or low <= number) and (high is None or number < high)


def chosen(rows: Rows, selection: Selection) -> Rows:
    return [
        row
        for row in rows
        if (selection.topics is None or row["topic"] in selection.topics)
        and (selection.topic_pattern is None or re.fullmatch(selection.topic_pattern, row["topic"]))
        and within(row["store_timestamp"], (selection.topic_times or {}).get(row["topic"]))
        and within(row["queue_offset"], (selection.queue_ranges or {}).get(row["topic"], {}).get(row["queue_id"]))
        and (selection.queue_ids is None or row["queue_id"] in selection.queue_ids)
        and (selection.since_ms is None or row["store_timestamp"] >= selection.since_ms)
        and (
            selection.queue_offsets is None
            or selection.queue_offsets[0] <= row["queue_offset"] < selection.queue_offsets[1]
        )
    ]


def ranges(low: int, high: int) -> st.SearchStrategy[Range]:
    numbers = st.lists(st.integers(low, high), min_size=2, max_size=2).map(sorted)
    return st.tuples(numbers, st.booleans(), st.booleans()).map(
        lambda drawn: (drawn[0][0] if drawn[1] else None, drawn[0][1] if drawn[2] else None)
    )


TOPIC = st.sampled_from(TOPICS)
_SELECTIONS = st.builds(
    lambda topics, times, queues, queue_ids, queue_offsets, since: Selection(
        since,
        **topics,
        topic_times=times,
        queue_ranges=queues,
        queue_ids=queue_ids,
        queue_offsets=queue_offsets,
    ),
    st.sampled_from(["T[34]", "T.*", "T1|%RETRY%.*", "none"]).map(lambda pattern: {"topic_pattern": pattern})
    | st.sets(TOPIC, min_size=1, max_size=3).map(lambda topics: {"topics": topics}),
    st.none() | st.dictionaries(st.sampled_from(TOPICS), ranges(START_MS - 1, START_MS + 800_000), max_size=4),
    st.none()
    | st.dictionaries(
        st.sampled_from(TOPICS), st.dictionaries(st.integers(0, 3), ranges(0, 90), max_size=3), max_size=4
    ),
    st.none() | st.sets(st.integers(0, 3), min_size=1),
    st.none() | st.tuples(st.integers(0, 40), st.integers(41, 90)),
    st.none() | st.integers(START_MS - 1, START_MS + 800_000),
)


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(selection=_SELECTIONS, split_size=st.sampled_from([2_000, 30_000, 1 << 26]))
def test_rows_read_through_queues_are_those_that_filtering_gives(
    made: tuple[Path, Rows], selection: Selection, split_size: int
) -> None:
    root, rows = made
    found, _ = read(root, selection, split_size)
    assert found == chosen(rows, selection)


def test_a_pattern_is_read_through_the_queues_of_its_topics(made: tuple[Path, Rows], tmp_path: Path) -> None:
    root, rows = copy(made, tmp_path)
    wanted = Selection(topic_pattern="T[34]", queue_ranges={"T3": {1: (10, 20)}})
    found, splits = read(root, wanted)
    assert found == chosen(rows, wanted)
    assert any(split.entries for split in splits)
    none, splits = read(root, Selection(topic_pattern="none"))
    assert (none, any(split.low < (1 << 16) for split in splits if not split.file.base)) == ([], False)
    (root / "config").mkdir()
    shutil.rmtree(root / "consumequeue" / "T3")
    (root / "config" / "topics.json").write_text('{"topicConfigTable": {"T3": {}}}')
    found, splits = read(root, wanted)
    assert found == chosen(rows, wanted)
    assert not any(split.entries for split in splits)


def test_times_of_all_selected_topics_are_a_time_range(made: tuple[Path, Rows]) -> None:
    root, rows = made
    times = {"T3": (START_MS + 700_000, None), "T4": (START_MS + 720_000, START_MS + 730_000)}
    for topics, is_less in (({"T3", "T4"}, True), ({"T3", "T5"}, False)):
        wanted = Selection(topics=topics, topic_times=times)
        found, splits = read(root, wanted)
        assert found == chosen(rows, wanted)
        assert (min(split.file.base + split.low for split in splits) > 100_000) is is_less


def test_a_topic_is_read_through_its_queues_but_for_the_end_of_the_log(made: tuple[Path, Rows]) -> None:
    root, rows = made
    found, splits = read(root, Selection(topics={"T3"}))
    assert found == chosen(rows, Selection(topics={"T3"}))
    walked = [split for split in splits if not split.entries]
    assert len(splits) - len(walked) >= 3
    assert sum(split.high - split.low for split in walked) <= MARGIN + 200
    assert all(not split.entries for split in read(root, Selection(topics={"T3"}, exact=True))[1])


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_every_topic_of_the_recorded_stores(tmp_path: Path, name: str) -> None:
    root = golden_store.unpack(name, tmp_path)
    rows = slow_rows(root / "commitlog")
    ways = set()
    for topic in {row["topic"] for row in rows} | {"none"}:
        found, splits = read(root, Selection(topics={topic}), 5_000)
        assert found == chosen(rows, Selection(topics={topic})), topic
        ways |= {bool(split.entries) for split in splits}
    assert ways == {True, False}


def copy(made: tuple[Path, Rows], tmp_path: Path) -> tuple[Path, Rows]:
    root = shutil.copytree(made[0], tmp_path / made[0].name)
    return root, made[1]


def entry_of(root: Path, row: dict[str, Any]) -> tuple[Path, int]:
    queue = root / "consumequeue" / row["topic"] / str(row["queue_id"])
    number = row["queue_offset"]
    return queue / f"{number // 100 * 2_000:020d}", number % 100 * 20


@pytest.mark.parametrize("at", [0, 7, 8, 10, 11])
def test_a_damaged_entry_hides_no_message(made: tuple[Path, Rows], tmp_path: Path, at: int) -> None:
    root, rows = copy(made, tmp_path)
    row = [row for row in rows if (row["topic"], row["queue_id"]) == ("T3", 1)][10]
    path, position = entry_of(root, row)
    overwrite(path, position + at, bytes([path.read_bytes()[position + at] ^ 1]))
    assert read(root, Selection(topics={"T3"}))[0] == chosen(rows, Selection(topics={"T3"}))


def test_a_queue_that_lost_its_beginning_has_the_log_read_up_to_what_it_knows(
    made: tuple[Path, Rows], tmp_path: Path
) -> None:
    root, rows = copy(made, tmp_path)
    mine = [row for row in rows if (row["topic"], row["queue_id"]) == ("T3", 1)]
    shutil.rmtree(root / "consumequeue" / "T3" / "1")
    write_queues(root, mine[10:])
    found, splits = read(root, Selection(topics={"T3"}))
    assert found == chosen(rows, Selection(topics={"T3"}))
    assert not splits[0].entries
    assert any(split.entries for split in splits)


def test_messages_that_are_not_yet_in_their_queue_are_found(made: tuple[Path, Rows], tmp_path: Path) -> None:
    root, rows = copy(made, tmp_path)
    shutil.rmtree(root / "consumequeue")
    end = rows[-100]["physical_offset"]
    # Queues of the topic are behind the others by less than the margin, and all are behind the log.
    behind = end - MARGIN // 2
    write_queues(root, [row for row in rows if row["physical_offset"] < (behind if row["topic"] == "T3" else end)])
    found, splits = read(root, Selection(topics={"T3"}))
    assert found == chosen(rows, Selection(topics={"T3"}))
    assert any(split.entries for split in splits)


def test_without_a_queue_for_each_topic_the_log_is_read(made: tuple[Path, Rows], tmp_path: Path) -> None:
    root, rows = copy(made, tmp_path)
    shutil.rmtree(root / "consumequeue" / "T3")
    found, splits = read(root, Selection(topics={"T3", "T4"}))
    assert found == chosen(rows, Selection(topics={"T3", "T4"}))
    assert not any(split.entries for split in splits)


def test_queues_with_too_many_entries_are_not_looked_at(
    made: tuple[Path, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_plan, "MOST_ENTRIES", 100)
    assert not any(split.entries for split in read(made[0], Selection(topics={"T3"}))[1])


def test_damaged_records_are_reported_where_their_queue_leads_to_them(
    made: tuple[Path, Rows], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, rows = copy(made, tmp_path)
    damaged = [row for row in rows if row["topic"] == "T3"][30]
    file, position = damaged["physical_offset"] >> 17 << 17, damaged["physical_offset"] % (1 << 17)
    overwrite(root / "commitlog" / f"{file:020d}", position + 4, b"????")
    report = DecodeReport()
    found, _ = read(root, Selection(topics={"T3"}), 3_000, report)
    expected = [row for row in chosen(rows, Selection(topics={"T3"})) if row is not damaged]
    assert sorted(found, key=lambda row: row["physical_offset"]) == expected
    assert [(each.position, each.length, each.reason) for each in report.ranges] == [
        (position, damaged["size"], "record-magic")
    ]
    assert "does not match the record there" in caplog.text


def test_an_entry_that_claims_too_much_takes_no_memory(made: tuple[Path, Rows], tmp_path: Path) -> None:
    root, rows = copy(made, tmp_path)
    row = next(row for row in rows if row["topic"] == "T3")
    path, position = entry_of(root, row)
    (split, *_) = plan_splits(root)
    for size in (1 << 30, 100_000):
        overwrite(path, position + 8, struct.pack(">i", size))
        with pytest.raises(QueueNotWholeError):
            list(queued_records(split.file, (EntryRange("T3", row["queue_id"], 0, 1),)))


@pytest.mark.parametrize("topic", ["T3", "%RETRY%" + "g" * 140])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize(
    ("position", "value"),
    [(4, b"????"), (84, struct.pack(">i", 1_000_000)), (84, struct.pack(">i", -3)), (92, struct.pack(">h", -300))],
    ids=["magic", "long body", "negative body", "topic"],
)
def test_lengths_of_a_damaged_record_are_not_followed(
    tmp_path: Path, topic: str, at: int, position: int, value: bytes
) -> None:
    writer = CommitLogWriter(tmp_path)
    for number in range(3):
        writer.append(b"body", topic.encode(), queue_offset=number)
    write_queues(tmp_path, slow_rows(writer.directory))
    (split,) = plan_splits(tmp_path)
    ranges = (EntryRange(topic, 0, 0, 3),)
    assert sum(map(len, queued_records(split.file, ranges))) == 3
    path, begin, _ = writer.records[at]
    overwrite(path, begin + position, value)
    with pytest.raises(QueueNotWholeError, match=f"offset {begin} does not match the record there"):
        list(queued_records(split.file, ranges))


def test_a_queue_is_asked_for_the_files_of_its_entries_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of topics and files would otherwise take minutes to plan."""
    writer, topics = CommitLogWriter(tmp_path, file_size=1 << 10), [f"T{number}" for number in range(60)]
    for topic in [*topics, *["Other"] * 300]:
        writer.append(bytes(300), topic.encode(), queue_offset=0 if topic != "Other" else len(writer.records) - 60)
    rows = slow_rows(writer.directory)
    write_queues(tmp_path, rows)
    monkeypatch.setattr(queue_plan, "_DISPATCH_MARGIN", 0)
    asked, between = list[tuple[int, int]](), QueueEntries.between

    def counted(entries: QueueEntries, low: int, high: int) -> QueueEntries:
        asked.append((low, high))
        return between(entries, low, high)

    monkeypatch.setattr(QueueEntries, "between", counted)
    found, splits = read(tmp_path, Selection(topics=set(topics)))
    assert [row["topic"] for row in found] == topics
    assert len(splits) >= 30
    assert len(asked) <= 5 * len(topics)
