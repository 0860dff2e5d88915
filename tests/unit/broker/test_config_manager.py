import asyncio
import errno
import json
import os
import threading
from pathlib import Path

import pytest

from rocketbroker.broker import config_manager
from rocketbroker.broker.config_manager import ConfigManager, ConfigPersistService
from rocketbroker.broker.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic_config_manager import TopicConfigManager
from rocketbroker.common.atomic_file import backup_of, replace_contents
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import CodecError, ConfigError
from tests.support.fakes import FakeClock


class Words(ConfigManager[list[str]]):
    """A table of words, one line of JSON."""

    def __init__(self, path, on_persist=None):
        super().__init__(path, on_persist)
        self.words = []
        self.encoded = 0

    def encode(self):
        self.encoded += 1
        return json.dumps(self.words).encode()

    def parse(self, data):
        try:
            return json.loads(data)
        except ValueError as error:
            raise CodecError(f"no words: {error}") from None

    def count(self, file):
        return len(file)

    def take(self, file):
        self.words = file


def topics(path: Path) -> ConfigManager:
    return TopicConfigManager(path, BrokerConfig(), FakeClock())


def groups(path: Path) -> ConfigManager:
    return SubscriptionGroupManager(path, BrokerConfig(), FakeClock())


def offsets(path: Path) -> ConfigManager:
    return ConsumerOffsetManager(path, FakeClock())


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


@pytest.mark.parametrize("damage", [b"", b"  \n", b'["tw', b"\xff\xfe\x00", None])
def test_backup_is_loaded_for_a_file_that_is_damaged_or_missing(path, damage):
    replace_contents(path, b'["one"]')
    replace_contents(path, b'["two"]')
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    words = Words(path)
    assert words.load()
    assert words.found
    assert words.words == ["one"]


@pytest.mark.parametrize("make", [topics, groups, offsets])
@pytest.mark.parametrize("content", [b"{}", b"[]", b'{"dataVersion":{"counter":1}}', bytes(100), b"null"])
def test_a_file_of_another_shape_is_damaged_rather_than_empty(path, make, content):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"words\.json is damaged: .*there is no words\.json\.bak: repair the file"):
        make(path).load()
    assert path.read_bytes() == content


def test_what_is_not_a_table_leaves_the_one_there_is(path):
    words = Words(path)
    words.words = ["kept"]
    with pytest.raises(CodecError):
        words.decode(b"[")
    assert words.words == ["kept"]


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
