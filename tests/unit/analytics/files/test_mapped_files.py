"""Files that are named by an offset, among others."""

from pathlib import Path

from rocketbroker.analytics.files.mapped_files import mapped_files
from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.store_root import StoreRoot


def test_files_come_by_offset_and_others_are_left_out(tmp_path: Path) -> None:
    queue = tmp_path / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    for name, size in {f"{600:020d}": 600, f"{0:020d}": 600, f"{1200:020d}": 40, "600.tmp": 9, "draft": 1}.items():
        (queue / name).write_bytes(bytes(size))
    (queue / f"{1800:020d}").mkdir()
    folder = open_folder(StoreRoot("a", str(tmp_path)))
    where = "consumequeue/T/0"
    assert mapped_files(folder, where) == [
        (at, f"{where}/{at:020d}", size) for at, size in ((0, 600), (600, 600), (1200, 40))
    ]
    assert [file.path for file in mapped_files(open_folder(StoreRoot("q", str(queue))), "")] == [
        f"{at:020d}" for at in (0, 600, 1200)
    ]
    assert mapped_files(folder, "consumequeue/T/1") == []
