from pathlib import Path

import pytest

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.tables.consume_queue import ConsumeQueueTable
from rocketbroker.analytics.tables.table import TableOptions
from rocketbroker.codec.storefile.consume_queue_layout import ENTRY, FILLER_ENTRY
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.slow_tables import slow_consume_queue
from tests.support.table_rows import named, table_rows


def by_place(row):
    return row["topic"], row["queue_id"], row["queue_offset"]


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """The folder of a queue of 60 entries a file."""
    folder = tmp_path / "consumequeue" / "T" / "3"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("split_size", [1, 500, 1 << 26])
def test_recorded_queues_equal_the_slow_reader_however_split(recorded, split_size):
    rows = table_rows(named(recorded), "consume_queue", options=TableOptions(split_size))
    assert sorted(rows, key=by_place) == slow_consume_queue(recorded, "broker-a")
    assert {row["batch_size"] for row in rows} == {1, 3}


def test_each_field_of_the_selection_chooses(recorded):
    expected = slow_consume_queue(recorded, "broker-a")
    for selection, holds in (
        (Selection(topics={"StFill", "StZip"}), lambda row: row["topic"] in {"StFill", "StZip"}),
        (Selection(queue_ids={1, 2}), lambda row: row["queue_id"] in {1, 2}),
        (Selection(queue_offsets=(3, 70)), lambda row: 3 <= row["queue_offset"] < 70),
        (Selection(physical_offsets=(245, 4021)), lambda row: 245 <= row["physical_offset"] < 4021),
        (Selection(topics={"StFill"}, queue_offsets=(5, 6)), lambda row: by_place(row) == ("StFill", 0, 5)),
        (Selection(brokers={"broker-b"}), lambda row: False),
    ):
        wanted = [row for row in expected if holds(row)]
        assert sorted(table_rows(named(recorded), "consume_queue", selection), key=by_place) == wanted
        assert len(wanted) < len(expected)


def test_it_cannot_be_chosen_by_what_queues_do_not_say(recorded):
    with pytest.raises(
        ConfigError, match="table consume_queue does not support selection by time, only by broker, physical offset"
    ):
        table_rows(named(recorded), "consume_queue", Selection(since_ms=1))


def test_fillers_unwritten_entries_and_half_ones_are_none(queue, tmp_path):
    entries = [FILLER_ENTRY, FILLER_ENTRY, ENTRY.pack(100, 90, 7), bytes(20), ENTRY.pack(190, 90, 8)]
    (queue / f"{1200:020d}").write_bytes(b"".join(entries) + b"\1" * 19)
    rows = table_rows(tmp_path, "consume_queue")
    assert [(row["queue_offset"], row["physical_offset"], row["tags_code"]) for row in rows] == [
        (62, 100, 7),
        (64, 190, 8),
    ]


def test_entries_that_no_broker_writes_are_shown_as_they_are(queue, tmp_path):
    (queue / ("0" * 20)).write_bytes(ENTRY.pack(-5, -90, -7))
    (row,) = table_rows(tmp_path, "consume_queue")
    assert (row["physical_offset"], row["size"], row["tags_code"]) == (-5, -90, -7)


def test_other_files_are_skipped(queue, tmp_path):
    (queue / ("0" * 20 + ".damaged")).write_bytes(ENTRY.pack(1, 90, 0))
    (queue / "draft").write_bytes(ENTRY.pack(1, 90, 0))
    (queue.parent / "notes").mkdir()
    assert table_rows(tmp_path, "consume_queue") == []


def test_a_file_that_is_removed_after_planning_is_named(queue, tmp_path):
    path = queue / ("0" * 20)
    path.write_bytes(ENTRY.pack(1, 90, 0))
    table = ConsumeQueueTable()
    from rocketbroker.analytics.files.store_names import store_roots

    (part,) = table.plan(store_roots(tmp_path), Selection(), TableOptions())
    path.unlink()
    with pytest.raises(StoreError, match=rf"cannot read the file {path}: No such file"):
        list(table.read(part, table.schema, Selection()))


def test_two_stores_form_one_table(recorded, queue, tmp_path):
    (queue / ("0" * 20)).write_bytes(ENTRY.pack(1, 90, 0))
    rows = table_rows([named(recorded), f"broker-b={tmp_path}"], "consume_queue")
    assert [row["topic"] for row in rows if row["broker"] == "broker-b"] == ["T"]
    assert len(rows) == len(slow_consume_queue(recorded, "broker-a")) + 1
    only = table_rows([named(recorded), f"broker-b={tmp_path}"], "consume_queue", Selection(brokers={"broker-b"}))
    assert [row["broker"] for row in only] == ["broker-b"]


def test_a_folder_that_is_no_store_is_rejected(tmp_path):
    with pytest.raises(
        StoreError, match="is not the root of a RocketMQ store: it contains none of commitlog, consumequeue"
    ):
        table_rows(tmp_path / "none", "consume_queue")
