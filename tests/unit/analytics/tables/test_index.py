import shutil
import struct
from collections import Counter

import pytest

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_files import LocalFolder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.tables import index
from rocketbroker.analytics.tables.table import TableOptions
from rocketbroker.analytics.tables.table_reader import find_table
from rocketbroker.codec.storefile.index_image import find_slot_count
from tests.support.golden_store import MAX_HASH_SLOT_NUM
from tests.support.slow_tables import slow_index
from tests.support.table_rows import in_ms, named, table_rows


@pytest.mark.parametrize("options", [TableOptions(), TableOptions(split_size=100), TableOptions(1 << 20, 50)])
def test_recorded_index_files_equal_the_slow_reader(recorded, options):
    assert table_rows(named(recorded), "index", options=options) == slow_index(recorded, "broker-a", MAX_HASH_SLOT_NUM)


def test_it_is_chosen_by_time_and_physical_offset(recorded):
    expected = slow_index(recorded, "broker-a", MAX_HASH_SLOT_NUM)
    middle = sorted(row["store_timestamp"] for row in expected)[len(expected) // 2]
    found = table_rows(named(recorded), "index", Selection(since_ms=middle, physical_offsets=(0, 60_000)))
    wanted = [row for row in expected if row["store_timestamp"] >= middle and row["physical_offset"] < 60_000]
    assert found == wanted
    assert 0 < len(wanted) < len(expected)


def index_file(tmp_path, header: bytes, size: int):
    path = tmp_path / "index" / "20261122000000000"
    path.parent.mkdir()
    path.write_bytes(header.ljust(size, b"\0"))
    return path


def test_a_file_without_entries_gives_none(tmp_path):
    index_file(tmp_path, struct.pack(">qqqqii", 0, 0, 0, 0, 0, 1), 4240)
    (tmp_path / "index" / "20261122000000000.damaged").write_bytes(b"x")
    assert table_rows(tmp_path, "index") == []


def test_slots_that_cannot_be_distinguished_from_entries_are_asked_for(tmp_path, caplog):
    path = index_file(tmp_path, struct.pack(">qqqqii", 5, 6, 7, 8, 1, 2), 4240)
    assert table_rows(tmp_path, "index") == []
    (told,) = caplog.messages
    assert told.startswith(
        f"{path}: its slots cannot be told from its entries; if the file is sound, set the option maxHashSlotNum"
    )
    (row,) = table_rows(tmp_path, "index", options=TableOptions(max_hash_slot_num=50))
    assert (row["entry"], row["store_timestamp"]) == (1, 5)


def test_a_file_is_read_again_if_a_broker_was_writing_an_entry(tmp_path, monkeypatch):
    """The slot leads to the second entry already, and the header does not know of it yet."""
    slots = struct.pack(">i", 0) * 3 + struct.pack(">i", 2) + bytes(46 * 4)
    entries = bytes(20) + struct.pack(">iqii", 53, 100, 0, 0) + struct.pack(">iqii", 103, 200, 0, 1)
    before, after = (struct.pack(">qqqqii", 5, 6, 100, end, 1, count) for end, count in ((100, 2), (200, 3)))
    path = index_file(tmp_path, before + slots + entries, 4240)
    (tmp_path / "abort").touch()
    seen = []

    def find(*arguments):
        seen.append(arguments)
        path.write_bytes(after + path.read_bytes()[40:])  # now the broker has done
        return find_slot_count(*arguments)

    monkeypatch.setattr("rocketbroker.codec.storefile.index_image.find_slot_count", find)
    assert [row["physical_offset"] for row in table_rows(tmp_path, "index")] == [100, 200]
    assert len(seen) == 2


def test_only_the_newest_file_is_read_again_since_a_broker_writes_in_no_other(tmp_path, monkeypatch, caplog):
    oldest = index_file(tmp_path, struct.pack(">qqqqii", 5, 6, 7, 8, 1, 2), 4240)
    for name in ("20261122000000001", "20261122000000002"):
        shutil.copy(oldest, oldest.with_name(name))
    (tmp_path / "abort").touch()
    opened = Counter[str]()

    class Folder(LocalFolder):
        def open(self, path, what="file"):
            opened[path] += 1
            return super().open(path, what)

    monkeypatch.setattr(index, "root_folder", Folder)
    monkeypatch.setattr(index, "_TURN_SECONDS", 0)
    assert table_rows(tmp_path, "index") == []
    assert len(caplog.messages) == 3
    # The header, then as often as the file is looked at.
    assert [opened[f"index/2026112200000000{number}"] for number in range(3)] == [2, 2, 1 + index._TURNS]


@pytest.mark.parametrize("left", [0, 1, 39, 40, 41, 100, 239, 240, 260, 279, 280, 281, 300, -5, -4, -1])
def test_a_file_cut_to_any_length_is_reported_and_gives_what_is_left(recorded, tmp_path, left, caplog):
    root = shutil.copytree(recorded, tmp_path / "store")
    (root / "abort").unlink(missing_ok=True)  # with it a broker may be writing, and the file is looked at for a second
    path = min((root / "index").iterdir())
    whole = slow_index(root, "broker-a", MAX_HASH_SLOT_NUM)
    with path.open("r+b") as file:
        file.truncate(left if left >= 0 else path.stat().st_size + left)
    found = table_rows(named(root), "index")
    assert all(row in whole for row in found)
    assert [row for row in whole if row["file"] != path.name] == [row for row in found if row["file"] != path.name]
    assert [str(path) in each for each in caplog.messages] == [True]
    given = table_rows(named(root), "index", options=TableOptions(max_hash_slot_num=MAX_HASH_SLOT_NUM))
    there = max((path.stat().st_size - 40 - 4 * MAX_HASH_SLOT_NUM) // 20, 0) if left >= 40 or left < 0 else 0
    assert given == [row for row in whole if row["file"] != path.name or row["entry"] < there]


def test_a_file_that_is_removed_or_cut_meanwhile_gives_what_was_left(recorded, tmp_path, caplog):
    root = shutil.copytree(recorded, tmp_path / "store")
    whole = slow_index(root, "broker-a", MAX_HASH_SLOT_NUM)
    path = min((root / "index").iterdir())
    rows = [row for row in whole if row["file"] != path.name]
    table = find_table("index")
    parts = table.plan([StoreRoot("broker-a", str(root))], Selection(), TableOptions())
    path.unlink()
    batches = [batch for part in parts for batch in table.read(part, in_ms("index"), Selection())]
    assert [row for batch in batches for row in batch.to_pylist()] == rows
    assert "was truncated or removed; entries from 1 on are left out" in caplog.text


def test_a_header_that_claims_too_many_entries_gives_those_there_is_room_for(tmp_path):
    index_file(tmp_path, struct.pack(">qqqqii", 0, 0, 0, 0, 0, 2**31 - 1), 40 + 50 * 4 + 7 * 20)
    assert len(table_rows(tmp_path, "index", options=TableOptions(max_hash_slot_num=50))) == 6
