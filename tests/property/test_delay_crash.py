"""A crash at every write, sync and rename of a run of delayed and timer messages, and a kill amid what is due after it.

The short form takes some of the crash points, ``--soak`` more of them with more seeds.
"""

import shutil
from pathlib import Path

import pytest

from rocketbroker.store import flush_service
from tests.support.crash_points import check_crashes
from tests.support.delay_crash import DelayCrashScript, Promised
from tests.support.recording_file_system import Loss

OPERATIONS = 150
FLUSH_TYPES = ["SYNC_FLUSH", "ASYNC_FLUSH"]


@pytest.fixture(autouse=True)
def _no_flush_by_itself(monkeypatch) -> None:
    monkeypatch.setattr(flush_service, "RETRY_S", 3600)


async def crash_everywhere(folder: Path, flush_disk_type: str, seed: int, step: int) -> int:
    """Run the script and check crashes at each ``step``-th point of its journal; gives how many."""
    script = DelayCrashScript(folder / "live", flush_disk_type, seed)
    await script.run(OPERATIONS)
    promised = Promised()

    async def check(image: Path, loss: Loss, _number: int) -> None:
        await script.check(image, promised, loss)
        shutil.rmtree(image.with_name(f"{image.name}-killed"))

    return await check_crashes(folder, script.journal, promised, check, seed=seed, step=step, what=flush_disk_type)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_after_a_crash_all_is_delivered_and_nothing_early_or_again_that_was_noted(
    tmp_path: Path, flush_disk_type: str
) -> None:
    assert await crash_everywhere(tmp_path, flush_disk_type, seed=1, step=23) > 25


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10, 14))
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_after_a_crash_at_any_point_all_is_delivered_and_nothing_early_or_again_that_was_noted(
    tmp_path: Path, flush_disk_type: str, seed: int
) -> None:
    checked = await crash_everywhere(tmp_path, flush_disk_type, seed, step=3)
    print(f"{flush_disk_type}, seed {seed}: {checked} crashes")
