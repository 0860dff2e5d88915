from pathlib import Path

import pytest

from rocketbroker.common.file_system import LOCAL
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.recovery.loaded_store import REBUILD_NOTE_FILE, RebuildNote, RecoveryReport
from tests.support.recording_file_system import RecordingFileSystem


def loaded(path: Path, findings: list[str] | None = None) -> RebuildNote:
    note = RebuildNote(path, LOCAL)
    note.load([] if findings is None else findings)
    return note


def test_without_a_note_nothing_is_half_made(tmp_path: Path):
    note = loaded(tmp_path / REBUILD_NOTE_FILE)
    assert (note.found_from, note.found_mended_to, note.stands) == (None, 0, False)


@pytest.mark.proves("When the store is opened", "5. rebuilt")
def test_the_next_start_finds_what_was_noted_last(tmp_path: Path):
    path = tmp_path / REBUILD_NOTE_FILE
    note = loaded(path)
    note.write(0, 4096)
    note.write(700)

    again = loaded(path)

    assert (again.found_from, again.found_mended_to, again.stands) == (700, 4096, True)
    again.remove()
    assert list(tmp_path.iterdir()) == []
    assert not loaded(path).stands


def test_a_mended_log_is_not_forgotten_by_the_start_after_next(tmp_path: Path):
    path = tmp_path / REBUILD_NOTE_FILE
    loaded(path).write(700, 4096)
    loaded(path).write(800)
    assert loaded(path).found_mended_to == 4096


@pytest.mark.parametrize("text", ["", "{}", '{"from":-1,"mendedTo":0}', '{"from":"x","mendedTo":0}', '{"from":1}'])
def test_a_damaged_note_has_everything_rebuilt(tmp_path: Path, text: str):
    path, findings = tmp_path / REBUILD_NOTE_FILE, list[str]()
    path.write_text(text)

    note = loaded(path, findings)

    assert (note.found_from, note.stands) == (0, True)
    assert [one.startswith(f"{path}: unreadable, so that queues and index are rebuilt") for one in findings] == [True]


def test_a_disk_that_refuses_the_note_does_not_keep_the_store_closed(tmp_path: Path, caplog):
    file_system = RecordingFileSystem(tmp_path / "disk")
    note = RebuildNote(tmp_path / "disk" / REBUILD_NOTE_FILE, file_system)

    def refuse(operation: str, _path: Path) -> None:
        if operation == "sync":
            raise OSError(28, "No space left on device")

    file_system.fault = refuse
    note.write(5)

    assert not note.stands
    assert "could not be written; if the broker is killed before the store is open" in caplog.text


def test_a_range_is_reported_by_file_and_once(tmp_path: Path):
    queue = MappedFileQueue(tmp_path, 4096)
    report = RecoveryReport(clean_stop=False)

    report.add_range(queue, 4000, 8292, "zeros")
    report.add_range(queue, 4100, 4200, "again")

    assert [(found.path.name, found.position, found.length) for found in report.corrupt_ranges] == [
        (f"{0:020d}", 4000, 96),
        (f"{4096:020d}", 0, 4096),
        (f"{8192:020d}", 0, 100),
    ]
    assert [str(found) for found in report.corrupt_ranges] == report.damage


def test_it_reads_as_one_line():
    report = RecoveryReport(clean_stop=True, end_of_log=70, cut_off="a: cut off at 7: torn", damaged_files=["b: gone"])

    assert str(report) == (
        "store opened after a clean stop: CommitLog checked from offset 0, it ends at 70, 0 messages dispatched again, "
        "0 index entries cut, in 0.0 s; a: cut off at 7: torn; b: gone"
    )
