"""A crash at every write, sync and rename of a run of transactions, and a kill amid the checks that follow.

The short form takes some of the crash points, ``--soak`` all of them with more seeds.
"""

from pathlib import Path

import pytest

from tests.support.crash_points import crash_everywhere
from tests.support.transaction_crash import Promised, TransactionCrashScript

OPERATIONS = 150
FLUSH_TYPES = ["SYNC_FLUSH", "ASYNC_FLUSH"]
pytestmark = pytest.mark.usefixtures("no_flush_by_itself")


async def check_all(folder: Path, flush_disk_type: str, seed: int, step: int) -> int:
    """Check crashes at each ``step``-th point of a run of the script; gives how many."""
    script = TransactionCrashScript(folder / "live", flush_disk_type, seed)
    return await crash_everywhere(script, folder, Promised(), operations=OPERATIONS, step=step)


@pytest.mark.long
@pytest.mark.proves("When the store is opened", "7. transactions")
@pytest.mark.proves("Transactions", "a broker killed between half message and commit; what is committed comes once")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_a_crash_delivers_only_committed_messages_once(tmp_path: Path, flush_disk_type: str) -> None:
    assert await check_all(tmp_path, flush_disk_type, seed=1, step=17) > 25


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10, 14))
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_a_crash_at_any_point_delivers_only_committed_messages_once(
    tmp_path: Path, flush_disk_type: str, seed: int
) -> None:
    checked = await check_all(tmp_path, flush_disk_type, seed, step=3)
    print(f"{flush_disk_type}, seed {seed}: {checked} crashes")
