"""Folders and files of a store on this machine."""

from pathlib import Path

import pytest

from rocketbroker.analytics.files.store_files import StoreEntry, checked_path, open_folder, opened
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.common.errors import StoreError


@pytest.fixture
def root(tmp_path: Path) -> StoreRoot:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "b.json").write_bytes(b"0123456789")
    (tmp_path / "config" / "a").mkdir()
    return StoreRoot("b", str(tmp_path))


def test_the_files_of_a_folder_are_sorted_by_name(root: StoreRoot) -> None:
    folder = open_folder(root)
    assert folder.entries() == [StoreEntry("config", 0, True)]
    assert folder.entries("config") == [StoreEntry("a", 0, True), StoreEntry("b.json", 10, False)]
    assert (folder.folders("config"), folder.files("config")) == (["a"], {"b.json": 10})
    assert folder.entries("none") == []
    assert [folder.is_folder(path) for path in ("", "config", "config/b.json", "none")] == [True, True, False, False]


def test_bytes_of_files(root: StoreRoot) -> None:
    folder = open_folder(root)
    assert folder.read("config/b.json") == b"0123456789"
    assert folder.read("config/b.json", 4) == b"456789"
    assert folder.read("config/b.json", 4, 2) == b"45"
    assert folder.read("config/b.json", 8, 5) == b"89"
    assert folder.read("config/b.json", 12) == b""
    assert folder.read("config/b.json", 4, 1 << 50) == b"456789"
    assert folder.read_if_there("config/none") is None
    with opened(folder, "config/b.json") as file:
        memory = bytearray(b"...............")
        assert file.read_into(7, memoryview(memory)) == 3
        assert memory == b"789............"
        assert file.size == 10
        assert file.read_each([0, 4, 1], 3) == b"012456123"
        assert file.read_each([8, 0, 10, 12], 3) == b"89\x00012" + bytes(6)
        assert file.read_each([], 3) == b""


def test_a_file_that_cannot_be_read_is_named(root: StoreRoot) -> None:
    folder = open_folder(root)
    with pytest.raises(StoreError, match=f"cannot read the file {root.uri}/config/none: No such file or directory"):
        folder.read("config/none")
    with pytest.raises(StoreError, match=r"config/b.json/x: Not a directory"):
        folder.read_if_there("config/b.json/x")


def test_no_file_stays_open(root: StoreRoot) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    folder = open_folder(root)
    for _ in range(20):
        folder.read("config/b.json")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a//b", "a/", ".", "a\0b", "a\\b"])
def test_no_path_leads_out_of_the_store(root: StoreRoot, path: str) -> None:
    folder = open_folder(root)
    for reach in (folder.entries, folder.is_folder, folder.open, folder.read, folder.read_if_there, checked_path):
        with pytest.raises(StoreError, match="is not a path within a store"):
            reach(path)


def test_what_goes_away_while_a_folder_is_listed_hides_nothing_else(root: StoreRoot) -> None:
    names = [f"{number:020d}" for number in range(50)]
    for name in names:
        (Path(root.uri) / "config" / name).write_bytes(b"x")
    (Path(root.uri) / "config" / "gone").symlink_to("nowhere")
    assert list(open_folder(root).files("config")) == [*names, "b.json"]


def test_a_folder_that_cannot_be_looked_at_is_named(root: StoreRoot) -> None:
    long = "a" * 300
    folder = open_folder(root)
    with pytest.raises(StoreError, match=f"cannot read the folder {root.uri}/{long}: File name too long"):
        folder.is_folder(long)
    with pytest.raises(StoreError, match="File name too long"):
        folder.entries(long)


def test_a_file_whose_bytes_the_system_does_not_give_is_named(root: StoreRoot) -> None:
    with opened(open_folder(root), "config/a", "commit-log file") as folder:  # opens, and cannot be read
        text = f"cannot read the commit-log file {root.uri}/config/a: Is a directory"
        with pytest.raises(StoreError, match=text):
            folder.read_at(0, 5)
        with pytest.raises(StoreError, match=text):
            folder.read_into(0, memoryview(bytearray(5)))
        with pytest.raises(StoreError, match=text):
            folder.read_each([0], 5)
