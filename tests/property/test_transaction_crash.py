"""A crash at every write, sync and rename of a run of transactions, and a kill amid the checks that follow.

The short form takes some of the crash points, ``--soak`` all of them with more seeds.
"""

import shutil
from pathlib import Path

import pytest

from rocketbroker.store import flush_service
from tests.support.crash_points import check_crashes
from tests.support.recording_file_system import Loss
from tests.support.transaction_crash import Promised, TransactionCrashScript

OPERATIONS = 150
FLUSH_TYPES = ["SYNC_FLUSH", "ASYNC_FLUSH"]


@pytest.fixture(autouse=True)
def _no_flush_by_itself(monkeypatch) -> None:
    monkeypatch.setattr(flush_service, "RETRY_S", 3600)


async def crash_everywhere(folder: Path, flush_disk_type: str, seed: int, step: int) -> int:
    """Run the script and check crashes at each ``step``-th point of its journal; gives how many."""
    script = TransactionCrashScript(folder / "live", flush_disk_type, seed)
    await script.run(OPERATIONS)
    promised = Promised()

    async def check(image: Path, loss: Loss, number: int) -> None:
        await script.check(image, promised, loss, seed=number)
        shutil.rmtree(image.with_name(f"{image.name}-killed"))

    return await check_crashes(folder, script.journal, promised, check, seed=seed, step=step, what=flush_disk_type)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_after_a_crash_what_is_committed_comes_once_and_nothing_else(
    tmp_path: Path, flush_disk_type: str
) -> None:
    assert await crash_everywhere(tmp_path, flush_disk_type, seed=1, step=17) > 25


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10, 14))
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_after_a_crash_at_any_point_what_is_committed_comes_once_and_nothing_else(
    tmp_path: Path, flush_disk_type: str, seed: int
) -> None:
    checked = await crash_everywhere(tmp_path, flush_disk_type, seed, step=3)
    print(f"{flush_disk_type}, seed {seed}: {checked} crashes")
