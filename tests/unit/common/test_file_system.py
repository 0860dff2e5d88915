"""The operating system's files: folders are synced by themselves, and what is gone is no error."""

import errno
import os
import stat
from pathlib import Path

import pytest

from rocketbroker.common.file_system import LOCAL, LocalFileSystem, parents_of, sync_names
from tests.support.stores import open_below


def test_the_folder_is_synced_and_closed(tmp_path: Path, monkeypatch):
    synced: list[int] = []

    def note(fd: int) -> None:
        assert stat.S_ISDIR(os.fstat(fd).st_mode)
        synced.append(os.fstat(fd).st_ino)

    monkeypatch.setattr(os, "fsync", note)
    before = open_below(tmp_path)

    LOCAL.sync_folder(tmp_path)

    assert synced == [tmp_path.stat().st_ino]
    assert open_below(tmp_path) == before


def test_a_folder_that_is_gone_has_no_names(tmp_path: Path):
    LOCAL.sync_folder(tmp_path / "gone")


def test_a_failing_disk_is_reported(tmp_path: Path, monkeypatch):
    def refuse(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)

    with pytest.raises(OSError, match="Input/output"):
        LOCAL.sync_folder(tmp_path)


def test_new_folders_are_returned_by_the_folder_of_their_name(tmp_path: Path):
    made = LOCAL.make_folders(tmp_path / "a" / "b")

    assert made == [tmp_path / "a", tmp_path]
    assert LOCAL.make_folders(tmp_path / "a" / "b") == []


def test_a_write_continues_until_all_is_written(tmp_path: Path, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, data[:3], position))
    fd = LOCAL.open(tmp_path / "file")

    LOCAL.write(fd, 2, b"12345678")

    LOCAL.close(fd)
    assert (tmp_path / "file").read_bytes() == b"\0\x0012345678"


def test_a_missing_file_is_no_error(tmp_path: Path):
    LOCAL.unlink(tmp_path / "file")
    LOCAL.remove_folder(tmp_path / "folder")


def test_a_rename_replaces_what_had_the_name(tmp_path: Path):
    (tmp_path / "old").write_text("new contents")
    (tmp_path / "new").write_text("old contents")

    LOCAL.rename(tmp_path / "old", tmp_path / "new")

    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("new", "new contents")]


@pytest.mark.proves("When a sync fails", "files after an unclean stop")
def test_all_names_of_a_tree_and_those_that_lead_to_it_are_synced(tmp_path: Path, monkeypatch):
    synced: list[Path] = []
    monkeypatch.setattr(LocalFileSystem, "sync_folder", lambda _, path: synced.append(path))
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "file").touch()

    sync_names(tmp_path / "a")

    assert set(synced) == {*parents_of(tmp_path / "a"), *(tmp_path / name for name in ("a", "a/b", "a/b/c"))}
    assert tmp_path in synced
    assert Path("/") in synced


def modes_below(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("umask", "folder", "file"), [(0o022, 0o750, 0o640), (0, 0o750, 0o640), (0o077, 0o700, 0o600)], ids=oct
)
def test_files_are_for_the_user_and_the_group_alone(tmp_path: Path, umask: int, folder: int, file: int):
    before = os.umask(umask)
    try:
        LOCAL.make_folders(tmp_path / "a" / "b")
        LOCAL.close(LOCAL.open(tmp_path / "a" / "b" / "file"))
    finally:
        os.umask(before)

    assert modes_below(tmp_path) == {"a": folder, "b": folder, "file": file}
