import os
from pathlib import Path

import pytest

from rocketbroker.store.logfile import mapped_file
from rocketbroker.store.logfile.mapped_file import MappedFile
from tests.support.stores import open_below

SIZE = 10_000


@pytest.fixture
def file(tmp_path: Path) -> MappedFile:
    made = MappedFile(tmp_path / "00000000000000000000", SIZE)
    made.ensure_allocated(SIZE)
    return made


def test_blocks_go_in_steps_once_nobody_holds_the_file(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(mapped_file, "_STEP", 4096)
    file = MappedFile(tmp_path / "00000000000000000000", SIZE)
    sizes: list[int] = []
    ftruncate = os.ftruncate
    removed = file.remove()

    def note(fd: int, size: int) -> None:
        sizes.append(size)
        ftruncate(fd, size)

    monkeypatch.setattr(os, "ftruncate", note)

    assert not removed.release()
    assert sizes == []
    del file
    assert removed.release()

    assert sizes == [8192, 4096, 0]
    assert open_below(tmp_path) == []


def test_closing_keeps_the_bytes_for_their_readers(file: MappedFile):
    file.write(0, 2, b"ab")
    view = file.buffer[:2]
    removed = file.remove()

    removed.close()
    removed.close()

    assert removed.path == file.path
    assert removed.size == SIZE
    assert bytes(view) == b"ab"
