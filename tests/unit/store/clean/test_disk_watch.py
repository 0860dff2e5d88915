import errno
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import StoreError
from rocketbroker.store.clean import disk_watch
from rocketbroker.store.clean.disk_watch import (
    DiskUse,
    DiskWatch,
    FullestDisk,
    disk_of,
    look_at_disks,
    measure_disk,
)
from rocketbroker.store.commitlog.put_message import Refusal, StandingRefusals
from tests.support.cleaning import SaidDisk
from tests.support.fakes import FakeClock
from tests.support.waiting import until


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
    assert measure_disk(tmp_path).ratio == ratio


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


class Watched:
    """A watch that is not started, and its disk."""

    def __init__(self) -> None:
        self.config = MessageStoreConfig(store_path_root_dir="/store")
        self.clock = FakeClock()
        self.disk = SaidDisk()
        self.refusals = StandingRefusals()
        self.watch = DiskWatch(self.config, self.refusals, self.clock, self.disk)

    @property
    def why(self) -> str:
        """Return the reason for which sends are rejected."""
        return self.refusals.current.reason if self.refusals.current else ""


@pytest.fixture
async def watched(monkeypatch) -> AsyncIterator[Watched]:
    monkeypatch.setattr(disk_watch, "TICK_S", 0.01)
    made = Watched()
    yield made
    await made.watch.stop()


async def test_over_90_percent_sends_are_rejected_until_there_is_room(watched: Watched, caplog):
    why = "the disk of /store/commitlog is 90.5 % full, above the limit of 90 % (diskSpaceWarningLevelRatio)"
    watched.disk.percent = 90.5
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert (await watched.watch.look()).percent == pytest.approx(90.5)
        assert watched.why == why
        watched.disk.percent = 90.0
        await watched.watch.look()

    assert watched.why == ""
    assert [(record.levelname, record.message.split(":")[0]) for record in caplog.records] == [
        ("ERROR", why),
        ("WARNING", "sends are accepted again"),
    ]


async def test_only_its_own_refusal_is_lifted(watched: Watched):
    watched.refusals.set(Refusal.READ_ONLY, "a sync failed")

    await watched.watch.look()

    assert watched.why == "a sync failed"


async def test_the_first_send_is_rejected_already(watched: Watched):
    watched.disk.percent = 95.0

    await watched.watch.start()

    assert "95.0 % full" in watched.why


async def test_it_looks_each_interval_and_each_second_while_it_refuses(watched: Watched):
    await watched.watch.start()
    watched.disk.percent = 95.0
    watched.clock.advance(9.9)
    await watched.watch._look_when_due()
    assert watched.why == ""

    watched.clock.advance(0.2)
    await until(lambda: watched.why)
    watched.disk.percent = 50.0
    watched.clock.advance(0.9)
    await watched.watch._look_when_due()
    assert watched.why
    watched.clock.advance(0.2)
    await until(lambda: not watched.why)


async def test_a_disk_that_cannot_be_asked_at_the_start_is_named(watched: Watched):
    watched.disk.error = OSError(errno.EIO, os.strerror(errno.EIO), "/store/commitlog")

    with pytest.raises(StoreError, match=r"cannot measure its disks: .*Input/output error: '/store/commitlog'"):
        await watched.watch.start()
