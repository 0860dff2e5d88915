"""A crash at any write of a store that copies another's log, is cut, and goes on with other bytes."""

import random
from pathlib import Path

import pytest

from rocketbroker.store.read.checked_reader import CachedWindows
from tests.support.busy_replica import BusyReplicaScript
from tests.support.crash_points import crash_at_points
from tests.support.replica_crash import PromisedLog, ReplicaCrashScript, some_logs, two_logs

pytestmark = pytest.mark.usefixtures("no_flush_by_itself")


async def check(folder: Path, flush_disk_type: str, seed: int, step: int) -> int:
    """Check crashes at each ``step``-th point; return how many."""
    first, second, cut = await two_logs(folder, cut_at=(5, 12, 20)[seed % 3])
    script = ReplicaCrashScript(folder / "live", flush_disk_type, seed)
    await script.run(0)
    await script.follow(first)
    await script.cut(cut)
    await script.follow(second)
    await script.stop()
    return await crash_at_points(script, folder, PromisedLog(), step=step)


@pytest.mark.long
@pytest.mark.proves("A log that copies another's", "a crash at any write")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_crashed_replica_keeps_a_prefix_of_a_log(tmp_path: Path, flush_disk_type: str, seed: int) -> None:
    assert await check(tmp_path, flush_disk_type, seed, step=19) > 5


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4, 10))
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_replica_crashed_at_any_point_keeps_a_prefix_of_a_log(
    tmp_path: Path, flush_disk_type: str, seed: int
) -> None:
    print(await check(tmp_path, flush_disk_type, seed, step=1))


async def check_busy(folder: Path, flush_disk_type: str, seed: int, step: int) -> BusyReplicaScript:
    """Check a copy that is pulled from and cleaned while it is cut, and crashes of it at each ``step``-th point."""
    chance = random.Random(seed)
    logs = await some_logs(folder, [chance.randrange(2, 23) for _ in range(4)])
    script = BusyReplicaScript(folder / "live", flush_disk_type, seed, chance.choice([0, 0, 16384, 32768]))
    await script.run_all(logs)
    assert await crash_at_points(script, folder, PromisedLog(), step=step) > 5
    return script


@pytest.fixture
def some_cold_reads(monkeypatch) -> None:
    """Read half of the pulls on a thread."""
    chance, holds = random.Random(0), CachedWindows.holds
    monkeypatch.setattr(CachedWindows, "holds", lambda *read: chance.random() < 0.5 and holds(*read))


@pytest.mark.long
@pytest.mark.proves("A log that copies another's", "cut beside pulls and cleaning")
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("some_cold_reads")
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_pulls_cleaning_and_cuts_at_the_same_time(tmp_path: Path, flush_disk_type: str, seed: int) -> None:
    script = await check_busy(tmp_path, flush_disk_type, seed, step=47)
    assert script.pulls > 5


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("some_cold_reads")
@pytest.mark.parametrize("seed", range(10, 30))
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_pulls_cleaning_and_cuts_at_the_same_time_crashed_at_many_points(
    tmp_path: Path, flush_disk_type: str, seed: int
) -> None:
    script = await check_busy(tmp_path, flush_disk_type, seed, step=3)
    print(len(script.journal), script.pulls, script.cleaned)
