"""Replacing a file's contents."""

import itertools
import json
from pathlib import Path

import pytest

from rocketbroker.common.atomic_file import backup_of, load_table, replace_contents
from rocketbroker.common.errors import CodecError, ConfigError
from tests.support.recording_file_system import RecordingFileSystem


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


DAMAGES = [b"", b" \n", b'{"a":', bytes(20), b"\xff\xfe", b"[]"]


def parse(data: bytes) -> dict:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise CodecError(str(error)) from error
    if not isinstance(value, dict):
        raise CodecError("no object")
    return value


def load(path: Path) -> dict | None:
    return load_table(path, parse, len)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "t.json"


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())


def test_no_file_is_no_table(path: Path) -> None:
    assert load(path) is None


def test_a_whole_file_is_used_whatever_its_backup_is(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    replace_contents(path, b'{"a":1}')
    replace_contents(path, b'{"a":2}')
    for backup in (*DAMAGES, b'{"a":1}'):
        backup_of(path).write_bytes(backup)
        assert load(path) == {"a": 2}
    assert caplog.text == ""


@pytest.mark.proves("Tables", "damaged")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_reported_and_set_aside(path: Path, caplog: pytest.LogCaptureFixture, damage: bytes) -> None:
    replace_contents(path, b'{"a":1}')
    replace_contents(path, b'{"a":2}')
    path.write_bytes(damage)
    assert load(path) == {"a": 1}
    assert f"{path} is " in caplog.text
    assert "its backup t.json.bak was loaded instead" in caplog.text
    assert path.with_name("t.json.damaged").read_bytes() == damage
    assert load(path) == {"a": 1}, "the next start finds the same"
    replace_contents(path, b'{"a":3}')
    assert load(backup_of(path)) == {"a": 1}, "the good backup is not written over by the damage"


@pytest.mark.proves("Tables", "damaged")
def test_a_missing_file_is_reported(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    replace_contents(path, b'{"a":1}')
    path.replace(backup_of(path))
    assert load(path) == {"a": 1}
    assert f"{path} is missing; its backup t.json.bak was loaded instead" in caplog.text
    assert names(path) == ["t.json.bak"]


@pytest.mark.proves("Tables", "damaged")
@pytest.mark.parametrize(("file", "backup"), list(itertools.product([None, *DAMAGES], [None, *DAMAGES])))
def test_nothing_readable_is_rejected_and_left_as_it_is(path: Path, file: bytes | None, backup: bytes | None) -> None:
    path.parent.mkdir()
    given = {name: data for name, data in ((path, file), (backup_of(path), backup)) if data is not None}
    for name, data in given.items():
        name.write_bytes(data)
    if not given:
        assert load(path) is None
        return
    with pytest.raises(ConfigError, match=r"t\.json.*repair the file, or remove it and its backup"):
        load(path)
    assert {name: name.read_bytes() for name in path.parent.iterdir()} == given


def test_an_unreadable_file_is_named(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"t\.json cannot be read: Is a directory"):
        load(path)


@pytest.mark.proves("Tables", "empty, or gone")
def test_an_empty_table_is_reported_once_and_what_was_in_it_is_kept(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replace_contents(path, b'{"a":1,"b":2}')
    replace_contents(path, b"{}")
    assert load(path) == {}
    assert f"{path} holds an empty table, but its backup t.json.bak has 2 entries" in caplog.text
    assert "kept as t.json.before-empty" in caplog.text
    caplog.clear()
    replace_contents(path, b'{"c":3}')
    replace_contents(path, b'{"c":4}')
    assert json.loads(path.with_name("t.json.before-empty").read_bytes()) == {"a": 1, "b": 2}
    assert load(path) == {"c": 4}
    assert caplog.text == ""


@pytest.mark.parametrize("backup", [None, b"{}", b"{"])
def test_an_empty_table_that_was_empty_before_is_nothing_to_tell(
    path: Path, caplog: pytest.LogCaptureFixture, backup: bytes | None
) -> None:
    replace_contents(path, b"{}")
    if backup is not None:
        backup_of(path).write_bytes(backup)
    assert load(path) == {}
    assert caplog.text == ""


def test_what_is_set_aside_has_its_new_name_on_disk(tmp_path: Path) -> None:
    disk = RecordingFileSystem(tmp_path / "disk")
    damaged, empty = tmp_path / "disk" / "damaged.json", tmp_path / "disk" / "empty.json"
    for path, contents in ((damaged, (b"{}", b'{"a":1}', b"{")), (empty, (b"{}", b'{"a":1}', b"{}"))):
        for data in contents:
            replace_contents(path, data, disk)
    before = len(disk.journal)

    assert load_table(damaged, parse, len, disk) == {"a": 1}
    assert load_table(empty, parse, len, disk) == {}

    assert [(event.kind, event.name, event.new_name) for event in disk.journal[before:]] == [
        ("rename", "damaged.json", "damaged.json.damaged"),
        ("sync-folder", "", ""),
        ("rename", "empty.json.bak", "empty.json.before-empty"),
        ("sync-folder", "", ""),
    ]


def test_a_file_that_cannot_be_renamed_is_reported(path: Path) -> None:
    replace_contents(path, b'{"a":1}')
    replace_contents(path, b"{")
    path.with_name("t.json.damaged").mkdir()
    with pytest.raises(ConfigError, match=r"t\.json cannot be set aside as t\.json\.damaged: Is a directory"):
        load(path)
    assert backup_of(path).read_bytes() == b'{"a":1}'
