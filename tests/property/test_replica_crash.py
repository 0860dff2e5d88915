"""A crash at any write of a store that copies another's log, is cut, and goes on with other bytes."""

from pathlib import Path

import pytest

from tests.support.crash_points import crash_at_points
from tests.support.replica_crash import PromisedLog, ReplicaCrashScript, two_logs

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
