from pathlib import Path

import pytest

from rocketbroker.analytics.files.commit_log_files import LogFile, commit_log_files
from rocketbroker.analytics.files.store_files import open_folder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log import minute_turns as module
from rocketbroker.analytics.log.minute_turns import MINUTE_MS, MinuteTurns, minute_turns
from rocketbroker.analytics.log.queue_entries import CheckedQueue, QueueNotWholeError
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.mixed_store import MixedStore
from tests.support.slow_store_reader import slow_rows


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("turns") / "store"
    MixedStore(root, 1_500, span_ms=60 * MINUTE_MS, mapped_file_size_commit_log=1 << 18).make()
    return root


def files_of(store: StoreRoot) -> list[LogFile]:
    return [file for file in commit_log_files(store) if file.data_end]


def turns_of(root: Path, leave: int = 0) -> MinuteTurns:
    """As the queues tell, but for some of them."""
    store = StoreRoot("b", str(root))
    folders = sorted(path for path in (root / "consumequeue").glob("*/*") if path.is_dir())
    queues = [CheckedQueue(open_folder(store), path.parent.name, int(path.name)) for path in folders[leave:]]
    return minute_turns(files_of(store), queues)


def expected(root: Path) -> list[tuple[int, int]]:
    """Each minute, and the offset of its first message, by a plain loop."""
    first: dict[int, int] = {}
    for row in slow_rows(root / "commitlog"):
        first.setdefault(row["store_timestamp"] // MINUTE_MS * MINUTE_MS, row["physical_offset"])
    return list(first.items())


def end_of(root: Path) -> int:
    last = slow_rows(root / "commitlog")[-1]
    return int(last["physical_offset"] + last["size"])


def test_minutes_begin_where_a_plain_loop_finds_it(made: Path) -> None:
    found = turns_of(made)
    assert list(zip(found.minutes.tolist(), found.begins.tolist(), strict=True)) == expected(made)
    assert len(found.minutes) > 50
    assert found.end == end_of(made)


@pytest.mark.parametrize("leave", [5, 20])
def test_what_stands_between_messages_of_queues_is_looked_at_in_the_log(made: Path, leave: int) -> None:
    found = turns_of(made, leave)
    assert list(zip(found.minutes.tolist(), found.begins.tolist(), strict=True)) == expected(made)


@pytest.mark.parametrize("most", [1, 10, 1_000])
def test_few_messages_after_those_of_the_queues_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    MixedStore(tmp_path / "store", 300, span_ms=60 * MINUTE_MS, mapped_file_size_commit_log=1 << 20).make()
    root, store = tmp_path / "store", StoreRoot("b", str(tmp_path / "store"))
    assert len(files_of(store)) == 1
    queue = CheckedQueue(open_folder(store), "orders", 0)
    rows = slow_rows(root / "commitlog")
    cut = rows[100]["physical_offset"]
    entries = root / "consumequeue" / "orders" / "0" / ("0" * 20)
    known = [int(offset) for offset in queue.whole().offsets if offset < cut]
    entries.write_bytes(entries.read_bytes()[: 20 * len(known)].ljust(entries.stat().st_size, b"\0"))
    monkeypatch.setattr(module, "_MOST_BEHIND", most)
    found = minute_turns(files_of(store), [queue])
    behind = [row for row in rows if row["physical_offset"] >= known[-1]][:most]
    assert found.end == behind[-1]["physical_offset"] + behind[-1]["size"]
    wanted = [(minute, begin) for minute, begin in expected(root) if begin < found.end]
    assert list(zip(found.minutes.tolist(), found.begins.tolist(), strict=True)) == wanted


def test_queues_without_entries_are_rejected(tmp_path: Path) -> None:
    CommitLogWriter(tmp_path).append_many(50)
    with pytest.raises(QueueNotWholeError, match="no queue points into the log"):
        turns_of(tmp_path)
