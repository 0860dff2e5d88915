"""Folders are synced by themselves; one that is gone is no error."""

import errno
import os
import stat
from pathlib import Path

import pytest

from rocketbroker.common.folders import sync_folder
from tests.support.stores import open_files


def test_the_folder_is_synced_and_closed(tmp_path: Path, monkeypatch):
    synced: list[int] = []

    def note(fd: int) -> None:
        assert stat.S_ISDIR(os.fstat(fd).st_mode)
        synced.append(os.fstat(fd).st_ino)

    monkeypatch.setattr(os, "fsync", note)
    before = open_files()

    sync_folder(tmp_path)

    assert synced == [tmp_path.stat().st_ino]
    assert open_files() == before


def test_a_folder_that_is_gone_has_no_names(tmp_path: Path):
    sync_folder(tmp_path / "gone")


def test_a_disk_that_refuses_is_told(tmp_path: Path, monkeypatch):
    def refuse(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)

    with pytest.raises(OSError, match="Input/output"):
        sync_folder(tmp_path)
