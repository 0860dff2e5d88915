import errno
import os
from pathlib import Path

import pytest

from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.store.disk_space import FullestDisk, disk_of, look_at_disks, used_percent, used_ratio


def disk(total: int, free: int, available: int) -> os.statvfs_result:
    return os.statvfs_result((4096, 4096, total, free, available, 0, 0, 0, 0, 255))


def test_a_folder_that_is_not_made_yet_is_on_the_disk_of_those_above_it(tmp_path: Path):
    assert disk_of(tmp_path / "not" / "made").f_blocks == os.statvfs(tmp_path).f_blocks
    assert 0 < used_percent(tmp_path / "not") < 100


def test_a_disk_that_does_not_answer_is_an_error(tmp_path: Path, monkeypatch):
    def refuse(_path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "statvfs", refuse)

    with pytest.raises(OSError, match="Input/output"):
        used_percent(tmp_path)


@pytest.mark.parametrize(
    ("blocks", "percent", "ratio"),
    [((1000, 700, 600), 100 / 3, 0.34), ((1000, 1000, 1000), 0.0, 0.0), ((1000, 0, 0), 100.0, 1.0), ((0, 0, 0), 0, 0)],
)
def test_what_only_root_may_have_counts_neither_as_used_nor_as_free(
    tmp_path: Path, monkeypatch, blocks, percent, ratio
):
    monkeypatch.setattr(os, "statvfs", lambda _: disk(*blocks))

    assert used_percent(tmp_path) == pytest.approx(percent)
    assert used_ratio(disk_of(tmp_path)) == ratio


@pytest.mark.parametrize(("fuller", "percent"), [("commitlog", 80.0), ("consumequeue", 90.0)])
def test_the_fuller_disk_counts(tmp_path: Path, fuller: str, percent: float):
    config = MessageStoreConfig(store_path_root_dir=str(tmp_path))

    found = look_at_disks(config, lambda path: percent if path.name == fuller else 10.0)

    assert found == FullestDisk(tmp_path / fuller, percent)


def test_a_limit_is_exceeded_only_above_it():
    found = FullestDisk(Path("/store/commitlog"), 90.04)

    assert found.above(91, "x") == ""
    assert FullestDisk(Path("/"), 90.0).above(90, "x") == ""
    assert found.above(90, "diskSpaceWarningLevelRatio") == (
        "the disk of /store/commitlog is 90.0 % full, which is more than 90 % (diskSpaceWarningLevelRatio)"
    )
