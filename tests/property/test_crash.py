"""A crash at every write, sync and rename of a run of operations, with whatever a power loss may take.

The short form takes some of the crash points, ``--soak`` all of them with more seeds.
"""

import shutil
from pathlib import Path

import pytest

from rocketbroker.store import flush_service
from tests.support.crash_script import CrashScript, Promised
from tests.support.recording_file_system import Disk, Loss

OPERATIONS = 200
FLUSH_TYPES = ["SYNC_FLUSH", "ASYNC_FLUSH"]


@pytest.fixture(autouse=True)
def _no_flush_by_itself(monkeypatch) -> None:
    monkeypatch.setattr(flush_service, "RETRY_S", 3600)


async def crash_everywhere(folder: Path, flush_disk_type: str, seed: int, step: int) -> int:
    """Run the script and check crashes at each ``step``-th point of its journal; gives how many."""
    script = CrashScript(folder / "live", flush_disk_type, seed)
    await script.run(OPERATIONS)
    await script.stop()
    assert not script.refused
    disk, promised, checked = Disk(), Promised(), 0
    for number, event in enumerate(script.journal):
        disk.apply(event)
        if event.kind == "mark":
            promised.take(event.mark)
        elif number % step == seed % step:
            loss = list(Loss)[checked % len(Loss)]
            image = folder / f"crash-{number}"
            disk.image(image, loss, seed=number)
            try:
                await script.check(image, promised, loss)
            except BaseException as error:
                error.add_note(
                    f"{flush_disk_type}, seed {seed}, crash after event {number} {event[:5]}, {loss}: {image}"
                )
                raise
            shutil.rmtree(image)
            checked += 1
    return checked


@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_a_crash_takes_nothing_that_was_promised(tmp_path: Path, flush_disk_type: str) -> None:
    assert await crash_everywhere(tmp_path, flush_disk_type, seed=1, step=17) > 50


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10, 14))
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_a_crash_at_any_point_takes_nothing_that_was_promised(
    tmp_path: Path, flush_disk_type: str, seed: int
) -> None:
    checked = 0
    for first in range(len(Loss)):
        checked += await crash_everywhere(tmp_path / str(first), flush_disk_type, seed * 4 + first, step=1)
    print(f"{flush_disk_type}, seed {seed}: {checked} crashes")
