import asyncio
import errno
import itertools
import json
import os
import shutil
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.persist import config_manager
from rocketbroker.broker.persist.config_manager import (
    ConfigManager,
    ConfigPersistService,
    EntryTexts,
    MissingTableReport,
    encode_file,
    file_text,
    struct_text,
)
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig, TopicConfigSerializeWrapper
from rocketbroker.common.atomic_file import backup_of, replace_contents
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import CodecError, ConfigError
from tests.support.fakes import FakeClock
from tests.support.recording_file_system import Disk as PlayedBack
from tests.support.recording_file_system import Loss, RecordingFileSystem
from tests.support.stores import make_store, message
from tests.support.waiting import until

VERSION = DataVersion(5, 6, 7)


def written(texts, table):
    return file_text(topicConfigTable=texts.object_text(table), dataVersion=struct_text(VERSION, 1))


def general(table):
    return encode_file(TopicConfigSerializeWrapper(table, VERSION))


def test_text_is_what_the_general_encoder_writes():
    table = {
        "T": TopicConfig("T", 1, 2, 6, attributes={"queue.type": "BatchCQ", "note": "line\nbreak"}),
        'odd"\\\n\u00e4': TopicConfig('odd"\\\n\u00e4'),
    }
    assert written(EntryTexts(), table) == general(table)
    assert written(EntryTexts(), {}) == general({})


def test_another_object_has_another_text():
    texts: EntryTexts = EntryTexts()
    table = {name: TopicConfig(name) for name in "abc"}
    assert written(texts, table) == general(table)
    table["a"] = TopicConfig("a", perm=4)
    table["b"] = TopicConfig("b", attributes={"queue.type": "BatchCQ"})
    del table["c"]
    table["d"] = TopicConfig("d")
    assert written(texts, table) == general(table)
    table["c"] = TopicConfig("c", 9, 9)
    assert written(texts, table) == general(table)


class Words(ConfigManager[Any]):
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


class Disk(RecordingFileSystem):
    """Keeps which operations were asked for, and refuses one of them so often."""

    def __init__(self, root):
        super().__init__(root)
        self.asked = []
        self.refused = None
        self.times = 0
        self.fault = self._fault

    def _fault(self, operation, path):
        self.asked.append((operation, path))
        if self.times and (operation, path) == self.refused:
            self.times -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@asynccontextmanager
async def persisting(disk):
    """A service on the disk, and a table of words of some pages that it writes."""
    service = ConfigPersistService(disk)
    words = Words(disk.root / "config" / "words.json", service.submit)
    await service.start()

    async def write(content):
        words.words = content
        words.persist()
        await service.drain()

    yield service, words, write
    await service.stop()


def long_table(word):
    """A table of more pages than one."""
    return [word] * 1000


def after_each_power_loss(tmp_path, journal, seeds=(0,), *, since_mark=False):
    """Before which mark, and the table in what each power loss would leave, ``None`` where there is none."""
    disk, numbers, mark = PlayedBack(), itertools.count(), None
    for event in journal:
        disk.apply(event)
        mark = event.mark or mark
        if since_mark and mark is None:
            continue
        for loss, seed in itertools.product(Loss, seeds):
            image = tmp_path / f"image-{next(numbers)}"
            disk.image(image, loss, seed)
            words = Words(image / "config" / "words.json")
            yield mark, words.words if words.load() else None
            shutil.rmtree(image)


@pytest.mark.proves("What is promised", "`config/`")
@pytest.mark.proves("Tables", "written in that order")
@pytest.mark.in_memory
async def test_a_power_loss_leaves_the_old_table_or_the_new_one(tmp_path):
    tables = [long_table(word) for word in ("one", "two", "three")]
    disk = Disk(tmp_path / "disk")
    async with persisting(disk) as (_, _, write):
        for number, table in enumerate(tables):
            disk.mark(number + 1)
            await write(table)
        disk.mark(len(tables) + 1)

    allowed = {None: [None], 1: [None, tables[0]], 2: tables[:2], 3: tables[1:], 4: tables[2:]}
    left = list(after_each_power_loss(tmp_path, disk.journal, range(3)))
    assert [(mark, table) for mark, table in left if table not in allowed[mark]] == []
    assert all((mark, table) in left for mark in (1, 2, 3) for table in allowed[mark])


async def operations_of_a_write(root):
    """Return the disk operations of a write of a table that exists."""
    disk = Disk(root)
    async with persisting(disk) as (_, _, write):
        await write(["old"])
        disk.asked.clear()
        await write(["new"])
    return list(dict.fromkeys(disk.asked))


@pytest.mark.proves("Tables", "a disk that refuses")
@pytest.mark.in_memory
async def test_a_write_that_the_disk_refuses_is_reported_once_and_tried_until_it_is_done(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(config_manager, "RETRY_S", 0.01)
    old, new = long_table("old"), long_table("new")
    operations = await operations_of_a_write(tmp_path / "dry")
    assert {operation for operation, _ in operations} == {
        "make_folders", "open", "set_size", "write", "sync", "rename", "sync_folder"
    }  # fmt: skip
    for number, (operation, path) in enumerate(operations):
        caplog.clear()
        disk = Disk(tmp_path / f"disk-{number}")
        async with persisting(disk) as (service, words, write):
            await write(old)
            disk.mark("changing")
            disk.refused, disk.times = (operation, disk.root / path.relative_to(tmp_path / "dry")), 3
            other = Words(words.path.with_name("other.json"), service.submit)
            words.words = new
            words.persist()
            other.persist()
            await until(lambda: "words.json is written again" in caplog.text)
            disk.mark("changed")
            await write(new)

        assert disk.times == 0
        assert caplog.text.count("words.json cannot be written: Input/output error; retrying every") == 1
        assert other.path.read_bytes() == b"[]"
        allowed = {"changing": [old, new], "changed": [new]}
        for mark, table in after_each_power_loss(tmp_path, disk.journal, since_mark=True):
            assert table in allowed[mark], (operation, path, mark)


@pytest.mark.proves("Tables", "a disk that refuses")
async def test_a_table_that_could_not_be_written_is_reported_at_the_stop(tmp_path, caplog):
    disk = Disk(tmp_path / "disk")
    async with persisting(disk) as (_, words, write):
        await write(["old"])
        disk.refused, disk.times = ("sync", words.path.with_name("words.json.tmp")), 9
        await write(["new"])

    assert disk.times == 7, "it was tried once more"
    assert f"{words.path} lacks the last changes: it could not be written before the broker stopped" in caplog.text
    assert json.loads(words.path.read_bytes()) == ["old"]


async def test_a_table_that_the_disk_refuses_does_not_delay_changes_of_others(tmp_path):
    disk = Disk(tmp_path / "disk")
    async with persisting(disk) as (service, words, write):
        disk.refused, disk.times = ("sync", words.path.with_name("words.json.tmp")), 9
        await write(["new"])
        other = Words(words.path.with_name("other.json"), service.submit)
        settled = other.persist()
        assert settled is not None

        done, _ = await asyncio.wait([settled], timeout=config_manager.RETRY_S / 5)

        assert done
        assert settled.result() == ""


async def test_a_table_that_cannot_be_encoded_does_not_keep_others_from_being_written(tmp_path, caplog, monkeypatch):
    disk = Disk(tmp_path / "disk")
    async with persisting(disk) as (service, words, write):
        for wrong in ({1, 2}, {3, 4}):
            await write(wrong)
        other = Words(words.path.with_name("other.json"), service.submit)
        other.persist()
        await service.drain()
        assert other.path.read_bytes() == b"[]"
        await write(["right"])

    assert caplog.text.count("words.json cannot be encoded: Object of type set is not JSON serializable") == 1
    assert "words.json is written again" in caplog.text
    assert json.loads(words.path.read_bytes()) == ["right"]


async def test_stop_while_writing_ends_with_the_last_content(tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    def slow(_operation, _path):
        begun.set()
        go_on.wait(60)

    disk = Disk(tmp_path / "disk")
    disk.fault = slow
    service = ConfigPersistService(disk)
    words = Words(disk.root / "words.json", service.submit)
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
    assert json.loads(words.path.read_bytes()) == ["last"]


async def test_the_text_of_a_long_table_is_made_off_the_loop(tmp_path, monkeypatch):
    made_on = set()

    def text(*arguments):
        made_on.add(threading.current_thread().name.partition("_")[0])
        return struct_text(*arguments)

    monkeypatch.setattr(config_manager, "struct_text", text)
    service = ConfigPersistService()
    await service.start()
    table = TopicConfigManager(
        tmp_path / "topics.json", BrokerConfig(broker_ip1="127.0.0.1"), FakeClock(), service.submit
    )
    table.update(TopicConfig("T"))
    settled = table.settled("T")
    assert settled is not None
    assert await settled == ""
    assert made_on == {"ConfigPersistService"}
    await service.stop()


async def test_each_change_is_settled_by_the_write_that_covers_it(tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    def slow(_operation: str, _path: Path) -> None:
        begun.set()
        go_on.wait(60)

    disk = Disk(tmp_path / "disk")
    disk.fault = slow
    service = ConfigPersistService(disk)
    table = TopicConfigManager(
        disk.root / "topics.json", BrokerConfig(broker_ip1="127.0.0.1"), FakeClock(), service.submit
    )
    await service.start()
    table.update(TopicConfig("First"))
    first = table.settled("First")
    assert await asyncio.to_thread(begun.wait, 5)
    table.update(TopicConfig("Second"))
    second = table.settled("Second")
    assert first is not None
    assert second is not None
    assert first is not second
    assert not first.done()
    go_on.set()
    assert (await first, await second) == ("", "")
    assert table.settled("First") is table.settled("Second") is None
    await service.stop()


async def test_a_stop_settles_what_it_writes_and_what_it_cannot_write(tmp_path):
    disk = Disk(tmp_path / "disk")
    service = ConfigPersistService(disk)
    words = Words(disk.root / "words.json", service.submit)
    await service.start()
    written = words.persist()
    await service.stop()
    assert written is not None
    assert written.result() == ""
    await service.start()
    disk.refused, disk.times = ("sync", words.path.with_name("words.json.tmp")), 9
    refused = words.persist()
    await service.stop()
    assert refused is not None
    assert refused.result().endswith("words.json cannot be written: Input/output error")


@pytest.mark.proves("Tables", "empty, or gone")
@pytest.mark.parametrize("in_use", [False, True])
async def test_a_lost_table_of_a_used_store_is_reported_and_each_is_written(tmp_path: Path, caplog, in_use: bool):
    store = make_store(tmp_path / "store")
    await store.start()
    if in_use:
        store.appender.put_message(message())
        store.appender.dispatch()
    written: list[object] = []
    offsets = ConsumerOffsetManager(tmp_path / "consumerOffset.json", FakeClock(), written.append)
    topics = TopicConfigManager(tmp_path / "topics.json", BrokerConfig(), FakeClock(), written.append)
    replace_contents(topics.path, topics.encode())
    for table in (offsets, topics):
        table.load()

    await MissingTableReport((offsets, topics), store.commit_log).start()

    told = [record.getMessage() for record in caplog.records if "is missing" in record.getMessage()]
    assert len(told) == in_use
    assert all(text.startswith(f"{offsets.path} is missing and has no backup") for text in told)
    assert written == [offsets]
    await store.stop()
