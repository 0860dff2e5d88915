"""A crash at every write, sync and rename of changes to topics and groups; a disk that refuses some of them.

The short form takes some of the crash points, ``--soak`` all of them with more seeds.
"""

import errno
import os
from pathlib import Path

import pytest

from rocketbroker.broker.persist import config_manager
from tests.support.crash_points import crash_everywhere
from tests.support.recording_file_system import Disk, Loss
from tests.support.table_crash import Promised, TableCrashScript
from tests.support.waiting import until

OPERATIONS = 40


async def check_all(folder: Path, seed: int, step: int) -> int:
    """Check crashes at each ``step``-th point of a run of the script; gives how many."""
    script = TableCrashScript(folder / "live", seed)
    checked = await crash_everywhere(script, folder, Promised(), operations=OPERATIONS, step=step)
    assert script.refused == []
    return checked


@pytest.mark.proves("Tables", "acknowledged changes")
@pytest.mark.timeout(300)
async def test_a_crash_keeps_each_change_that_was_acknowledged(tmp_path: Path) -> None:
    assert await check_all(tmp_path, seed=1, step=13) > 50


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10, 16))
async def test_a_crash_at_any_point_keeps_each_change_that_was_acknowledged(tmp_path: Path, seed: int) -> None:
    for first in range(len(Loss)):
        print(f"seed {seed}: {await check_all(tmp_path / str(first), seed * 4 + first, step=1)} crashes")


class Faults:
    """Refuses operations of one kind from the k-th on, ``count`` of them."""

    def __init__(self, kind: str, first: int, count: int) -> None:
        self._kind, self._range = kind, range(first, first + count)
        self._seen = 0

    def __call__(self, operation: str, _path: Path) -> None:
        if operation == self._kind:
            self._seen += 1
            if self._seen in self._range:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.proves("Tables", "refused changes")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["open", "write", "sync", "rename", "sync_folder"])
async def test_failed_changes_are_undone_and_written_ones_kept(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_manager, "RETRY_S", 0.001)
    for first in range(4, 41, 4):
        script = TableCrashScript(tmp_path / f"live-{first}", seed=first)
        script.file_system.fault = Faults(kind, first, first % 8 or 1_000_000)
        await script.run(OPERATIONS // 2)
        script.file_system.fault = Faults(kind, 0, 0)
        assert [remark for remark in script.refused if "No space left on device" not in remark] == []
        assert script.refused
        # What was refused is tried until the disk takes it; then memory and disk are alike.
        await until(script.is_settled)
        there = script.states(script.topics, script.groups)
        disk, promised = Disk(), Promised()
        for event in script.journal:
            disk.apply(event)
            promised.take(event.mark)
        assert all(state in promised.states[entry].values() for entry, state in there.items())
        assert script.refused_changes.isdisjoint(there.values()), "it was told that it is undone"
        await script.stop()
        image = tmp_path / f"image-{first}"
        disk.image(image, Loss.ALL, first)
        topics, groups, _ = script._tables(image, None)
        topics.load()
        groups.load()
        assert script.states(topics, groups) == there
