"""Where queues are too many to be gone through, the log tells of what they may lack."""

from pathlib import Path

import pytest

from rocketbroker.analytics.files import log_window
from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.analytics.queues import queue_proof
from rocketbroker.analytics.tables.unqueued_records import EVERYWHERE, logged_entries, queued_to
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.consume_queue_writer import write_queues
from tests.support.slow_store_reader import slow_rows

QUEUES = 4
COUNT = 80


@pytest.fixture
def root(tmp_path: Path) -> StoreRoot:
    """A store that was not stopped in order, the queues of which have all of its log."""
    writer = CommitLogWriter(tmp_path)
    for number in range(COUNT):
        writer.append(bytes(200), b"%DLQ%g", queue_id=number % QUEUES, queue_offset=number // QUEUES)
    write_queues(tmp_path, slow_rows(writer.directory))
    (tmp_path / "abort").write_bytes(b"1")
    return StoreRoot("b", str(tmp_path))


def test_no_queue_is_relied_on_where_there_are_more_than_are_gone_through(
    root: StoreRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, folder = slow_rows(Path(root.uri, "commitlog")), open_folder(root)
    monkeypatch.setattr(queue_proof, "_MOST_LOCAL", QUEUES)
    assert queued_to(folder) == rows[-1]["physical_offset"] + rows[-1]["size"]
    monkeypatch.setattr(queue_proof, "_MOST_LOCAL", QUEUES - 1)
    monkeypatch.setattr(queue_proof, "shown_to", lambda *given: pytest.fail("all queues are read"))
    assert queued_to(folder) == 0
    Path(root.uri, "abort").unlink()
    assert queued_to(folder) == EVERYWHERE


def test_the_log_is_gone_through_in_the_windows_of_a_walk(root: StoreRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_window, "_LOCAL_WINDOW_SIZE", 3_000)
    (split,) = plan_splits([root])
    found = list(logged_entries(split, "%DLQ%"))
    assert sum(map(len, found)) == COUNT
    assert len(found) > 5 * QUEUES
