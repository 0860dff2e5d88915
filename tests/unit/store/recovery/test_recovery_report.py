from pathlib import Path

from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.recovery.recovery_report import RecoveryReport


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
