import errno
import os
from pathlib import Path

import pytest

from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.store.clean.disk_space import DiskUse, FullestDisk, disk_of, look_at_disks, measure_disk, used_ratio


def disk(total: int, free: int, available: int) -> os.statvfs_result:
    return os.statvfs_result((4096, 4096, total, free, available, 0, 0, 0, 0, 255))


def test_a_folder_that_is_not_made_yet_is_on_the_disk_of_those_above_it(tmp_path: Path):
    assert disk_of(tmp_path / "not" / "made").f_blocks == os.statvfs(tmp_path).f_blocks
    assert 0 < measure_disk(tmp_path / "not").used < measure_disk(tmp_path).capacity


def test_a_disk_that_does_not_answer_is_an_error(tmp_path: Path, monkeypatch):
    def refuse(_path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "statvfs", refuse)

    with pytest.raises(OSError, match="Input/output"):
        measure_disk(tmp_path)


@pytest.mark.parametrize(
    ("blocks", "percent", "ratio"),
    [((1000, 700, 600), 100 / 3, 0.34), ((1000, 1000, 1000), 0.0, 0.0), ((1000, 0, 0), 100.0, 1.0), ((0, 0, 0), 0, 0)],
)
def test_what_only_root_may_have_counts_neither_as_used_nor_as_free(
    tmp_path: Path, monkeypatch, blocks, percent, ratio
):
    monkeypatch.setattr(os, "statvfs", lambda _: disk(*blocks))

    assert FullestDisk(tmp_path, measure_disk(tmp_path)).percent == pytest.approx(percent)
    assert used_ratio(disk_of(tmp_path)) == ratio


@pytest.mark.parametrize("fuller", ["commitlog", "consumequeue"])
def test_the_fuller_disk_counts(tmp_path: Path, fuller: str):
    config = MessageStoreConfig(store_path_root_dir=str(tmp_path))

    found = look_at_disks(config, lambda path: DiskUse(80, 100) if path.name == fuller else DiskUse(500, 1000))

    assert found == (tmp_path / fuller, DiskUse(80, 100))


def test_a_limit_is_exceeded_only_above_it():
    found = FullestDisk(Path("/store/commitlog"), DiskUse(9004, 10_000))

    assert found.above(91, "x") == ""
    assert FullestDisk(Path("/"), DiskUse(9000, 10_000)).above(90, "x") == ""
    assert found.above(90, "x", coming=4) == ""
    assert found.above(90, "x", coming=3) != ""
    assert found.above(90, "diskSpaceWarningLevelRatio") == (
        "the disk of /store/commitlog is 90.0 % full, above the limit of 90 % (diskSpaceWarningLevelRatio)"
    )
