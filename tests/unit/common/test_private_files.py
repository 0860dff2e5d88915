"""Files that others may not read, written whole or not at all."""

import os
import random
from pathlib import Path

import pytest

from rocketbroker.common.errors import ConfigError
from rocketbroker.common.private_files import check_private, write_private
from tests.support.recording_file_system import Disk, Loss, RecordingFileSystem


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_file_is_its_owners_whatever_the_umask_and_an_earlier_draft(tmp_path: Path):
    path = tmp_path / "config" / "a.json"
    path.parent.mkdir()
    draft = path.with_name("a.json.tmp")
    draft.write_bytes(b"of an earlier crash, longer than what follows")
    draft.chmod(0o666)
    before = os.umask(0)
    try:
        write_private(path, b"one")
        write_private(path, b"two")
    finally:
        os.umask(before)

    assert path.read_bytes() == b"two"
    assert mode(path) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["a.json"]


def test_the_folder_is_made(tmp_path: Path):
    write_private(tmp_path / "a" / "b" / "c", b"one")
    assert (tmp_path / "a" / "b" / "c").read_bytes() == b"one"


def test_a_link_in_place_of_the_draft_is_not_followed(tmp_path: Path):
    victim, path = tmp_path / "victim", tmp_path / "a.json"
    victim.write_bytes(b"kept")
    path.with_name("a.json.tmp").symlink_to(victim)
    write_private(path, b"one")
    assert victim.read_bytes() == b"kept"
    assert path.read_bytes() == b"one"


@pytest.mark.parametrize("loss", Loss)
def test_a_crash_leaves_the_old_or_the_new_contents(tmp_path: Path, loss: Loss):
    disk = RecordingFileSystem(tmp_path / "disk")
    path = disk.root / "config" / "a.json"
    write_private(path, b"old" * 500, disk)
    written = len(disk.journal)
    write_private(path, b"new" * 700, disk)

    seen = set()
    for end in range(written, len(disk.journal) + 1):
        image, root = Disk(), tmp_path / f"image-{end}"
        for event in disk.journal[:end]:
            image.apply(event)
        image.image(root, loss, random.randrange(1_000))
        seen.add((root / "config" / "a.json").read_bytes())
    assert seen == {b"old" * 500, b"new" * 700}


@pytest.mark.parametrize("given", [0o640, 0o604, 0o660, 0o601])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, given: int):
    path = tmp_path / "a.json"
    path.write_bytes(b"")
    path.chmod(given)
    with pytest.raises(ConfigError, match=f"has mode {given:04o}, so that others can use it; run: chmod 600 "):
        check_private(path)
    path.chmod(0o600)
    check_private(path)
    path.chmod(0o400)
    check_private(path)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        check_private(tmp_path / "a.json")
    with pytest.raises(ConfigError, match="is not a regular file"):
        check_private(tmp_path)
