"""Replacing a file's contents."""

from pathlib import Path

import pytest

from rocketbroker.common.atomic_file import backup_of, replace_contents


def test_the_folder_is_made_and_nothing_is_backed_up_at_first(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "kv.json"
    replace_contents(path, b"one")
    assert path.read_bytes() == b"one"
    assert [entry.name for entry in path.parent.iterdir()] == ["kv.json"]


def test_the_previous_contents_stay_beside_the_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    for data in (b"one", b"two", b"three"):
        replace_contents(path, data)
    assert path.read_bytes() == b"three"
    assert backup_of(path).read_bytes() == b"two"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["kv.json", "kv.json.bak"]


def test_a_failed_write_leaves_the_old_contents(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    replace_contents(path, b"one")
    (tmp_path / "kv.json.tmp").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_contents(path, b"two")
    assert path.read_bytes() == b"one"
