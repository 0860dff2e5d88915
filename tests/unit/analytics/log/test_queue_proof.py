"""Queues that may lack entries hide no message: they are relied on as far as they have all of the log."""

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.analytics import DecodeReport, Selection, read_store
from rocketbroker.analytics.files.commit_log_files import commit_log_files
from rocketbroker.analytics.files.store_files import LocalFolder, open_folder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log import queue_plan, queue_proof
from rocketbroker.analytics.log.queue_proof import all_queues, entries_of, has_all_queues, is_closed, shown_to
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.analytics.report.collect import collect_facts
from rocketbroker.common.errors import StoreError
from rocketbroker.common.local_file import LocalFile
from tests.support import golden_store
from tests.support.commit_log_writer import CommitLogWriter, overwrite
from tests.support.consume_queue_writer import write_queues
from tests.support.slow_store_reader import slow_rows

STRETCH = 20_000
SLOW = Selection(topics={"Slow"})
HOLDER = """
import sys
from pathlib import Path
from rocketbroker.store.recovery.store_lock import StoreLock
lock = StoreLock(Path(sys.argv[1]), Path(sys.argv[1], "abort"))
lock.acquire()
print("held", flush=True)
sys.stdin.readline()
lock.note_open()
print("open", flush=True)
sys.stdin.readline()
"""

Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read small stores through their queues."""
    monkeypatch.setattr(queue_plan, "_DISPATCH_MARGIN", STRETCH)
    monkeypatch.setattr(queue_proof, "STRETCH", STRETCH)


def store(root: Path) -> Rows:
    """A busy topic with messages of one size, and a slow one, as a power loss may leave them."""
    writer, counts = CommitLogWriter(root, file_size=1 << 17), {"Busy": 0, "Slow": 0}
    for number in range(1_800):
        topic = "Busy" if number % 9 else "Slow"
        writer.append(bytes(200), topic.encode(), queue_id=counts[topic] % 2, queue_offset=counts[topic] // 2)
        counts[topic] += 1
    rows = slow_rows(writer.directory)
    write_queues(root, rows)
    (root / "abort").write_bytes(b"1")
    return rows


def lose_entries(root: Path, topic: str, queue_id: int, keep: int) -> None:
    """Make zeros of all entries of a queue but the first ``keep``."""
    for number, path in enumerate(sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())):
        kept = min(max(keep - number * 100, 0), 100) * 20
        path.write_bytes(path.read_bytes()[:kept] + bytes(2_000 - kept))


def count(root: Path, selection: Selection = SLOW, report: DecodeReport | None = None) -> int:
    return sum(batch.num_rows for batch in read_store(root, ["size"], selection=selection, report=report))


def walked(root: Path) -> int:
    return sum(split.high - split.low for split in plan_splits(root, selection=SLOW) if not split.entries)


@pytest.mark.parametrize("keep", [0, 1, 60])
def test_entries_that_did_not_reach_the_disk_hide_no_message(tmp_path: Path, keep: int) -> None:
    rows = store(tmp_path)
    slow = [row for row in rows if row["topic"] == "Slow"]
    lose_entries(tmp_path, "Slow", 1, keep)
    report = DecodeReport()
    assert count(tmp_path, report=report) == len(slow) == 200
    (unproven,) = report.unproven
    first_lost = [row for row in slow if row["queue_id"] == 1][keep]["physical_offset"]
    # Without an entry in the queue nothing is proved from its first message on, which is in the first stretch.
    assert unproven.low <= first_lost < unproven.low + STRETCH + 1_000
    facts = collect_facts(tmp_path, SLOW)
    assert sum(row["messages"] for row in facts.queues.to_pylist()) == 200


def test_a_queue_whose_folder_did_not_reach_the_disk_hides_none(tmp_path: Path) -> None:
    store(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue" / "Slow" / "1")
    assert count(tmp_path) == 200
    assert count(tmp_path, Selection(topics={"Slow"}, queue_ids={1})) == 100


def test_what_queues_show_to_be_whole_is_read_through_them(tmp_path: Path) -> None:
    rows = store(tmp_path)
    report = DecodeReport()
    assert count(tmp_path, report=report) == 200
    assert report.unproven == []
    assert walked(tmp_path) == 0
    lose_entries(tmp_path, "Busy", 0, 700)
    end = rows[-1]["physical_offset"] + rows[-1]["size"]
    assert 0 < walked(tmp_path) < end / 4
    assert count(tmp_path) == 200


def test_a_repeated_entry_does_not_replace_a_missing_one(tmp_path: Path) -> None:
    """Sizes alone would add up."""
    rows = store(tmp_path)
    lost = [row for row in rows if (row["topic"], row["queue_id"]) == ("Slow", 1)][60:]
    lose_entries(tmp_path, "Slow", 1, 60)
    of_that_size = {row["physical_offset"]: row for row in lost}
    copies = [row | {"topic": "Twice", "queue_id": 0} for row in rows if row["topic"] == "Slow"]
    again = [row for row in copies if row["physical_offset"] not in of_that_size][-len(lost) :]
    write_queues(tmp_path, [row | {"queue_offset": number} for number, row in enumerate(again)])
    assert count(tmp_path) == 200


def test_a_store_that_was_stopped_in_order_is_not_gone_through(tmp_path: Path) -> None:
    store(tmp_path)
    (tmp_path / "abort").unlink()
    lose_entries(tmp_path, "Busy", 0, 700)
    assert walked(tmp_path) <= STRETCH + 1_000


def test_a_small_part_of_the_log_is_read_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = store(tmp_path)
    monkeypatch.setattr(queue_proof, "shown_to", lambda *given: pytest.fail("all queues are read"))
    low = rows[900]["physical_offset"]
    selection = Selection(topics={"Slow"}, physical_offsets=(low, low + 30_000))
    expected = sum(row["topic"] == "Slow" and low <= row["physical_offset"] < low + 30_000 for row in rows)
    assert count(tmp_path, selection) == expected > 0


@contextmanager
def broker(root: Path) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLDER, str(root)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
        process.communicate("\n\n")


def test_queues_are_taken_for_whole_once_a_broker_has_recovered_them(tmp_path: Path) -> None:
    folder = open_folder(StoreRoot("b", str(tmp_path)))
    (tmp_path / "abort").write_bytes(b"1")
    (tmp_path / "lock").write_bytes(b"lock")
    assert not has_all_queues(folder)
    with broker(tmp_path) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        assert not has_all_queues(folder)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "open\n"
        assert has_all_queues(folder)
    assert not has_all_queues(folder)
    (tmp_path / "abort").unlink()
    assert has_all_queues(folder)


def batch_queue(root: Path, name: str = f"{0:020d}") -> Path:
    """A BatchConsumeQueue of one entry."""
    path = root / "batchconsumequeue" / "Batches" / "0" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack(">qiqqqhii", 4_000, 300, 0, 0, 0, 1, 0, 0))
    return path


class LosingFolder(LocalFolder):
    """A store in which a broker removes the files of some queues once they were listed."""

    removed = ("consumequeue/Busy/0/", "batchconsumequeue/Batches/0/")

    def open(self, path: str, what: str = "file") -> LocalFile:
        if path.startswith(self.removed):
            Path(self.root.uri, path).unlink(missing_ok=True)
        return super().open(path, what)


def test_a_queue_whose_files_are_removed_meanwhile_is_skipped(tmp_path: Path) -> None:
    rows = store(tmp_path)
    batch_queue(tmp_path)
    folder = LosingFolder(StoreRoot("b", str(tmp_path)))
    queues = all_queues(folder)
    assert [topic for _, topic, _ in queues] == ["Busy", "Busy", "Slow", "Slow", "Batches"]
    found = sorted(offset for entries in entries_of(folder, queues) for offset in entries.offsets.tolist())
    left = [row for row in rows if (row["topic"], row["queue_id"]) != ("Busy", 0)]
    assert found == [row["physical_offset"] for row in left]


def test_a_queue_that_cannot_be_read_is_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = batch_queue(tmp_path)
    folder = open_folder(StoreRoot("b", str(tmp_path)))
    entries = entries_of(folder, all_queues(folder))
    path.unlink()
    path.symlink_to(path)
    monkeypatch.setattr(folder, "files", lambda _: {path.name: 46})
    with pytest.raises(StoreError, match="Batches"):
        list(entries)


def test_what_is_not_called_as_a_file_of_a_queue_is_none(tmp_path: Path) -> None:
    batch_queue(tmp_path, "5")
    batch_queue(tmp_path, f"{0:020d}.damaged")
    folder = open_folder(StoreRoot("b", str(tmp_path)))
    assert list(entries_of(folder, all_queues(folder))) == []
    batch_queue(tmp_path)
    (entries,) = entries_of(folder, all_queues(folder))
    assert (entries.offsets.tolist(), entries.sizes.tolist()) == ([4_000], [300])


def shown(root: Path, *, backwards: bool = False) -> int:
    at = StoreRoot("b", str(root))
    folder = open_folder(at)
    queues = all_queues(folder)
    return shown_to(commit_log_files(at), entries_of(folder, queues[::-1] if backwards else queues), 0)


@pytest.mark.parametrize("seed", range(6))
def test_the_log_is_shown_up_to_the_stretch_of_the_first_record_in_no_queue(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows = store(tmp_path)
    lost = chance.randrange(len(rows))
    path = tmp_path / "consumequeue" / rows[lost]["topic"] / str(rows[lost]["queue_id"])
    number = rows[lost]["queue_offset"]
    assert shown(tmp_path) == rows[-1]["physical_offset"] + rows[-1]["size"]
    # Still in order, but not where the record is.
    entry = path / f"{number // 100 * 2_000:020d}"
    overwrite(entry, number % 100 * 20, struct.pack(">qi", rows[lost]["physical_offset"], rows[lost]["size"] - 1))
    end = shown(tmp_path)
    assert end <= rows[lost]["physical_offset"] < end + STRETCH + 1_000
    assert shown(tmp_path, backwards=True) == end


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_the_queues_of_recorded_stores_have_all_of_their_log(tmp_path: Path, name: str) -> None:
    root = golden_store.unpack(name, tmp_path)
    last = slow_rows(root / "commitlog")[-1]
    assert shown(root) == last["physical_offset"] + last["size"]


def test_a_file_ends_at_its_size_or_in_a_blank(tmp_path: Path) -> None:
    rows = store(tmp_path)
    first, *_, last = commit_log_files(StoreRoot("b", str(tmp_path)))
    end = max(row["physical_offset"] + row["size"] for row in rows if row["physical_offset"] < first.size)
    assert is_closed(first, end)
    assert is_closed(first, first.size)
    assert not is_closed(first, end - 1)
    assert not is_closed(last, last.data_end)
