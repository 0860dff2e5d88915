"""A disk that refuses the k-th write, sync, allocation or rename: nothing promised is lost, and the store goes on.

The short form takes some of the operations, ``--soak`` all of them.
"""

import errno
import os
from pathlib import Path

import pytest

from rocketbroker.store.flush import flush_service
from tests.support.crash_script import CrashScript, Promised
from tests.support.recording_file_system import Disk, Loss

OPERATIONS = 60
KINDS = ["write", "sync", "allocate", "rename", "sync_folder", "open", "set_size", "map"]


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch) -> None:
    monkeypatch.setattr(flush_service, "RETRY_S", 0.005)


class Faults:
    """Refuses the operations of one kind from the k-th on, ``count`` of them."""

    def __init__(self, kind: str, first: int, count: int, code: int) -> None:
        self._kind, self._range, self._code = kind, range(first, first + count), code
        self.seen = 0

    def __call__(self, operation: str, _path: Path) -> None:
        if operation == self._kind:
            self.seen += 1
            if self.seen in self._range:
                raise OSError(self._code, os.strerror(self._code))


async def run_with(folder: Path, flush_disk_type: str, seed: int, faults: Faults) -> CrashScript:
    """Run the script on a disk with faults, and check what a power loss right after it leaves."""
    script = CrashScript(folder / "live", flush_disk_type, seed)
    script.file_system.fault = faults
    await script.run(OPERATIONS)
    await script.go_on()
    disk, promised = Disk(), Promised()
    for event in script.journal:
        disk.apply(event)
        promised.take(event.mark)
    await script.stop()
    for loss in (Loss.ALL, Loss.PAGES):
        disk.image(folder / loss.value, loss, seed)
        await script.check(folder / loss.value, promised, loss)
    return script


@pytest.mark.long
@pytest.mark.proves("When a sync fails", "all of these, followed by a power loss")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_disk_that_fails_for_a_while_loses_nothing(
    tmp_path: Path, kind: str, flush_disk_type: str, code: int
) -> None:
    met, refused = 0, 0
    for number, (first, count) in enumerate([(2, 1), (7, 2), (20, 1), (33, 5)]):
        faults = Faults(kind, first, count, code)
        script = await run_with(tmp_path / str(number), flush_disk_type, seed=number, faults=faults)
        met += faults.seen >= first
        refused += len(script.refused)
    assert met, "none of the faults was met"
    assert refused or kind != "sync", "a sync that failed was told to nobody"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("kind", KINDS)
async def test_each_failed_disk_operation_loses_nothing(
    tmp_path: Path, kind: str, flush_disk_type: str, code: int
) -> None:
    first, met = 0, True
    while met:
        first += 1
        faults = Faults(kind, first, 1 + first % 3, code)
        await run_with(tmp_path / str(first), flush_disk_type, seed=100, faults=faults)
        met = faults.seen >= first
    print(f"{kind}, {flush_disk_type}, {errno.errorcode[code]}: {first - 1} faults")


class NoDescriptors(Faults):
    """Refuses all that needs a descriptor for a while, as a process at its limit of open files."""

    def __call__(self, operation: str, path: Path) -> None:
        super().__call__("open" if operation in {"open", "sync_folder"} else "", path)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize(("first", "count"), [(2, 3), (12, 6), (30, 20)])
async def test_a_shortage_of_descriptors_loses_nothing(
    tmp_path: Path, flush_disk_type: str, first: int, count: int
) -> None:
    faults = NoDescriptors("open", first, count, errno.EMFILE)

    await run_with(tmp_path, flush_disk_type, seed=first, faults=faults)

    assert faults.seen >= first + count, "it has gone on afterwards"
