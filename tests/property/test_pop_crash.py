"""A crash at every write, sync and rename of a run of POP consumption, and a kill amid what returns after it.

The short form takes some of the crash points, ``--soak`` more of them with more seeds.
"""

from pathlib import Path

import pytest

from rocketbroker.broker.pop import pop_check_points
from tests.support.crash_points import crash_everywhere
from tests.support.pop_crash import PopCrashScript, Promised

OPERATIONS = 150
FLUSH_TYPES = ["SYNC_FLUSH", "ASYNC_FLUSH"]
pytestmark = [pytest.mark.usefixtures("no_flush_by_itself"), pytest.mark.in_memory]


@pytest.fixture(autouse=True)
def often_stored_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check points are stored again after some twenty records."""
    monkeypatch.setattr(pop_check_points, "_MOST_READ", 20)
    monkeypatch.setattr(pop_check_points, "_READ_FOR_EACH", 2)


async def check_all(folder: Path, flush_disk_type: str, seed: int, step: int, operations: int = OPERATIONS) -> int:
    """Check crashes at each ``step``-th point of a run of the script; gives how many."""
    script = PopCrashScript(folder / "live", flush_disk_type, seed)
    checked = await crash_everywhere(script, folder, Promised(), operations=operations, step=step)
    print(f"{script}: {checked} crashes; {dict(script.counts)}")
    return checked


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 14])
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_a_crash_loses_no_message_and_no_acknowledgement(tmp_path: Path, flush_disk_type: str, seed: int) -> None:
    assert await check_all(tmp_path, flush_disk_type, seed, step=47) > 20


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10, 20))
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_a_crash_at_any_point_loses_no_message_and_no_acknowledgement(
    tmp_path: Path, flush_disk_type: str, seed: int
) -> None:
    assert await check_all(tmp_path, flush_disk_type, seed, step=7, operations=400) > 100
