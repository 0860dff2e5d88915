import logging
import shutil

import pytest

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.tables.dead_letters import DeadLetterPart
from rocketbroker.analytics.tables.table import TableOptions
from rocketbroker.analytics.tables.table_reader import find_table
from tests.support.commit_log_writer import overwrite
from tests.support.slow_tables import slow_dead_letters
from tests.support.table_rows import named, table_rows


def test_recorded_dead_letters_equal_the_slow_reader(clean):
    expected = slow_dead_letters(clean, "broker-a")
    assert table_rows(named(clean), "dead_letters") == expected
    assert {row["origin_topic"] for row in expected} == {"StRetry"}


def test_each_field_of_the_selection_chooses(clean):
    first, *others = slow_dead_letters(clean, "broker-a")
    for selection in (
        Selection(topics={first["topic"]}, queue_offsets=(0, 1)),
        Selection(physical_offsets=(0, first["physical_offset"] + 1)),
        Selection(until_ms=first["store_timestamp"] + 1),
        Selection(keys={first["uniq_key"]}),
    ):
        assert table_rows(named(clean), "dead_letters", selection) == [first], selection
    assert table_rows(named(clean), "dead_letters", Selection(keys={"kretry"}, tags={"TagR"})) == [first, *others]
    assert table_rows(named(clean), "dead_letters", Selection(topics={"StRetry"})) == []


@pytest.fixture
def damaged(clean, tmp_path):
    """A copy of a store, the first dead letter of which lost its magic code."""
    root = shutil.copytree(clean, tmp_path / "damaged")
    offset = slow_dead_letters(clean, "broker-a")[0]["physical_offset"]
    overwrite(root / "commitlog" / ("0" * 20), offset + 4, b"????")
    return root


def test_one_whose_record_is_damaged_is_a_row_of_what_the_queue_says(clean, damaged, caplog):
    expected = slow_dead_letters(clean, "broker-a")
    of_queue = ("broker", "group_name", "topic", "queue_id", "queue_offset", "physical_offset", "size")
    expected[0] = {name: value if name in of_queue else None for name, value in expected[0].items()}
    with caplog.at_level(logging.WARNING):
        rows = table_rows(named(damaged), "dead_letters")
    assert sorted(rows, key=lambda row: row["queue_offset"]) == expected
    (told,) = caplog.messages
    assert told.startswith(
        f"{damaged}/consumequeue/%DLQ%CG_StRetry/0/{0:020d}: 1 entries from queue offset 0 on point to"
    )


def test_a_queue_without_its_log_gives_what_the_queue_says(clean, tmp_path, caplog):
    root = shutil.copytree(clean, tmp_path / "store")
    shutil.rmtree(root / "commitlog")
    rows = table_rows(named(root), "dead_letters")
    assert [row["msg_id"] for row in rows] == [None] * len(slow_dead_letters(clean, "broker-a"))
    assert "point to no readable record" in caplog.text


def test_those_that_were_removed_with_the_begin_of_the_log_do_not_count(clean, tmp_path):
    root = shutil.copytree(clean, tmp_path / "store")
    (root / "commitlog" / ("0" * 20)).unlink()
    wanted = [row for row in slow_dead_letters(clean, "broker-a") if row["physical_offset"] >= 65536]
    assert table_rows(named(root), "dead_letters") == wanted


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_those_whose_entries_did_not_reach_the_disk_are_found_in_the_log(clean, tmp_path, caplog, kept):
    root = shutil.copytree(clean, tmp_path / "store")
    (root / "abort").write_bytes(b"1")
    path = root / "consumequeue" / "%DLQ%CG_StRetry" / "0" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[: kept * 20].ljust(path.stat().st_size, b"\0"))
    if not kept:
        shutil.rmtree(path.parent.parent)
    expected = slow_dead_letters(clean, "broker-a")
    found = table_rows(named(root), "dead_letters")
    assert sorted(found, key=lambda row: row["physical_offset"]) == expected
    assert len(caplog.messages) == (1 if kept < len(expected) else 0)
    assert table_rows(named(root), "dead_letters", Selection(topics={"%DLQ%other"})) == []


def test_nothing_is_gone_through_where_the_queues_have_all_of_the_log(clean, tmp_path, caplog):
    root = shutil.copytree(clean, tmp_path / "store")
    (root / "abort").write_bytes(b"1")
    parts = find_table("dead_letters").plan([StoreRoot("broker-a", str(root))], Selection(), TableOptions())
    assert {type(part) for part in parts} == {DeadLetterPart}
    assert caplog.messages == []
