import asyncio
import errno
import json
import os
import threading
from pathlib import Path

import pytest

from rocketbroker.broker import config_manager
from rocketbroker.broker.config_manager import ConfigManager, ConfigPersistService
from rocketbroker.common.atomic_file import backup_of, replace_contents
from rocketbroker.common.errors import CodecError, ConfigError


class Words(ConfigManager):
    """A table of words, one line of JSON."""

    def __init__(self, path, on_persist=None):
        super().__init__(path, on_persist)
        self.words = []
        self.encoded = 0

    def encode(self):
        self.encoded += 1
        return json.dumps(self.words).encode()

    def decode(self, data):
        try:
            self.words = json.loads(data)
        except ValueError as error:
            raise CodecError(f"no words: {error}") from None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "words.json"


def test_nothing_to_load(path):
    words = Words(path)
    assert not words.load()
    assert words.words == []


def test_write_keeps_the_previous_content_as_backup(path):
    replace_contents(path, b'["one"]')
    assert not backup_of(path).exists()
    replace_contents(path, b'["two"]')
    assert path.read_bytes() == b'["two"]'
    assert backup_of(path).read_bytes() == b'["one"]'
    assert sorted(file.name for file in path.parent.iterdir()) == ["words.json", "words.json.bak"]


@pytest.mark.parametrize("damage", [b"", b"  \n", b'["tw', b"\xff\xfe\x00"])
def test_damaged_file_is_set_aside_and_backup_loaded(path, caplog, damage):
    replace_contents(path, b'["one"]')
    replace_contents(path, b'["two"]')
    path.write_bytes(damage)
    words = Words(path)
    assert words.load()
    assert words.words == ["one"]
    assert "words.json.bak was loaded instead" in caplog.text
    assert path.with_name("words.json.damaged").read_bytes() == damage
    # The next write must not put the damage over the good backup.
    replace_contents(path, words.encode())
    assert backup_of(path).read_bytes() == b'["one"]'


def test_crash_between_the_two_renames(path):
    replace_contents(path, b'["one"]')
    path.replace(backup_of(path))
    words = Words(path)
    assert words.load()
    assert words.words == ["one"]


@pytest.mark.parametrize("backup", [None, b"", b"{"])
def test_never_an_empty_table_when_nothing_can_be_read(path, backup):
    path.parent.mkdir()
    path.write_bytes(b"[")
    if backup is not None:
        backup_of(path).write_bytes(backup)
    with pytest.raises(ConfigError, match=r"words\.json is damaged: no words.*repair the file, or remove it"):
        Words(path).load()
    assert path.read_bytes() == b"["


def test_unreadable_file_is_named(path):
    path.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"words\.json cannot be read: Is a directory"):
        Words(path).load()


async def test_changes_while_writing_make_one_further_write(path):
    service = ConfigPersistService()
    words = Words(path, service.submit)
    words.words = ["before start"]
    words.persist()
    await service.start()
    for number in range(100):
        words.words = [str(number)]
        words.persist()
    await service.drain()
    assert json.loads(path.read_bytes()) == ["99"]
    assert words.encoded <= 2
    await service.stop()


async def test_stop_writes_what_is_pending(path):
    service = ConfigPersistService()
    words = Words(path, service.submit)
    other = Words(path.with_name("other.json"), service.submit)
    await service.start()
    words.words, other.words = ["a"], ["b"]
    words.persist()
    other.persist()
    await service.stop()
    assert json.loads(path.read_bytes()) == ["a"]
    assert json.loads(other.path.read_bytes()) == ["b"]


async def test_failed_write_is_logged_and_tried_again(path, caplog, monkeypatch):
    failures = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]
    write = replace_contents

    def full_once(path, data):
        if failures:
            raise failures.pop()
        write(path, data)

    monkeypatch.setattr(config_manager, "replace_contents", full_once)
    monkeypatch.setattr(config_manager, "RETRY_S", 0.01)
    service = ConfigPersistService()
    words = Words(path, service.submit)
    words.words = ["kept"]
    await service.start()
    words.persist()
    await service.drain()
    assert "words.json cannot be written: No space left on device" in caplog.text
    await service.stop()
    assert json.loads(path.read_bytes()) == ["kept"]


async def test_stop_while_writing_ends_with_the_last_content(path, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    write = replace_contents

    def slow(path, data):
        begun.set()
        go_on.wait(5)
        write(path, data)

    monkeypatch.setattr(config_manager, "replace_contents", slow)
    service = ConfigPersistService()
    words = Words(path, service.submit)
    words.words = ["first"]
    await service.start()
    words.persist()
    assert await asyncio.to_thread(begun.wait, 5)
    words.words = ["last"]
    words.persist()
    stopping = asyncio.ensure_future(service.stop())
    await asyncio.sleep(0)
    go_on.set()
    await stopping
    assert json.loads(path.read_bytes()) == ["last"]
