"""Stores with one damaged file, opened, read and written as a broker does it, against what was put into them.

``Template`` is made once: two stores of the same messages, one stopped cleanly and one as a kill leaves it. ``damage``
spoils one file at a seeded place, and ``Trial`` says what must hold then.
"""

import asyncio
import logging
import random
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.persist.config_manager import AnyConfigManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_batch import BatchParts
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import ConfigError, StoreError
from rocketbroker.store.commitlog.put_message import PutMessageStatus
from rocketbroker.store.logfile.mapped_file import MappedFile
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult
from tests.support.fakes import FakeClock
from tests.support.stores import ALWAYS, LOG_FILE, V4_HOST, V6_HOST, completed, crash_copy, make_store, message, pulled

Queue = tuple[str, int]
MESSAGES = 560
KINDS = ("flip", "flip", "flips", "cut", "zero", "noise", "remove")


class Put(NamedTuple):
    """A message of the template: the place of its record, its body and keys."""

    physical_offset: int
    size: int
    body: bytes
    keys: tuple[str, ...]


class Template:
    """The stores to damage, and their contents.

    Args:
        folder: where they are made; ``clean`` and ``killed`` below it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.puts: dict[Queue, list[Put]] = defaultdict(list)
        self.clock = FakeClock()
        with asyncio.Runner() as runner:
            runner.run(self._make())

    @property
    def names(self) -> tuple[str, ...]:
        """Of the two stores."""
        return ("clean", "killed")

    async def _make(self) -> None:
        root = self.folder / "clean"
        store = make_store(root, self.clock)
        await store.start()
        _write_tables(root)
        for number in range(MESSAGES):
            self.clock.advance(0.05)
            self._put(store, number)
            if number == MESSAGES * 2 // 3:
                _checkpoint(store, self.clock.time_ms())
        store.appender.dispatch()
        store.dispatcher.flush_index()
        crash_copy(root, self.folder / "killed")
        await store.stop()
        assert len(list((root / "commitlog").iterdir())) >= 4

    def _put(self, store: MessageStore, number: int) -> None:
        topic, queue_id = (RMQ_SYS_SCHEDULE_TOPIC, number % 3) if number % 5 == 0 else (f"T{number % 4}", number % 2)
        host = V6_HOST if number % 7 == 0 else V4_HOST
        body = random.Random(number).randbytes(50 + number * 37 % 700)
        keys = (f"U{number}", f"k{number % 6}")
        properties = {"UNIQ_KEY": keys[0], "KEYS": keys[1], "TAGS": f"t{number % 3}"}
        if topic == RMQ_SYS_SCHEDULE_TOPIC:
            properties |= {"DELAY": str(queue_id + 1), "REAL_TOPIC": "T0", "REAL_QID": "0"}
        if number % 11 == 0:
            self._put_batch(store, topic, queue_id, number)
            return
        result = store.appender.put_message(message(body, topic, queue_id, properties=properties, born_host=host))
        assert result.status is PutMessageStatus.PUT_OK
        self.puts[topic, queue_id].append(Put(result.physical_offset, result.size, body, keys))

    def _put_batch(self, store: MessageStore, topic: str, queue_id: int, number: int) -> None:
        bodies = [b"%d.%d " % (number, each) * 9 for each in range(4)]
        raw = [b"UNIQ_KEY\x01B%d.%d\x02" % (number, each) for each in range(4)]
        result = store.appender.put_messages(message(b"", topic, queue_id), BatchParts([0] * 4, bodies, raw))
        assert result.status is PutMessageStatus.PUT_OK
        for each, offset in enumerate(result.physical_offsets):
            record = store.commit_log.record(offset)
            assert record is not None
            self.puts[topic, queue_id].append(Put(offset, len(record), bodies[each], (f"B{number}.{each}",)))

    def copy(self, name: str, into: Path) -> Path:
        """Return a store to be damaged."""
        shutil.copytree(self.folder / name, into)
        return into

    def files(self, name: str) -> list[str]:
        """Return the files of a store by their paths in it."""
        root = self.folder / name
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def _checkpoint(store: MessageStore, now_ms: int) -> None:
    """Flush all that was put, so that an unclean start knows a part to be on disk."""
    store.appender.dispatch()
    store.flusher.flush()
    store.dispatcher.flush_index()
    store.checkpoint.advance(index_msg_timestamp=now_ms)
    store.queue_flusher.flush()


def _tables(root: Path) -> tuple[AnyConfigManager, ...]:
    folder, clock, config = root / "config", FakeClock(), BrokerConfig()
    return (
        TopicConfigManager(folder / "topics.json", config, clock),
        SubscriptionGroupManager(folder / "subscriptionGroup.json", config, clock),
        ConsumerOffsetManager(folder / "consumerOffset.json", clock),
    )


def _write_tables(root: Path) -> None:
    topics, groups, offsets = _tables(root)
    assert isinstance(topics, TopicConfigManager)
    assert isinstance(groups, SubscriptionGroupManager)
    assert isinstance(offsets, ConsumerOffsetManager)
    for number in range(4):
        topics.update(TopicConfig(f"T{number}"))
        groups.find(f"G{number}")
        offsets.commit(f"G{number}", f"T{number}", 0, 10)
        for table in (topics, groups, offsets):
            replace_contents(table.path, table.encode())


class Damage(NamedTuple):
    """A damage and its file, as a failing test shows it."""

    store: str
    file: str
    kind: str
    at: int
    length: int


def kind_of_file(name: str) -> str:
    """Return the kind of a file; all kinds are damaged equally often."""
    parts = Path(name).parts
    if parts[0] == "config":
        return "config backup" if name.endswith(".bak") else "config"
    return parts[0]


def choose(template: Template, chance: random.Random) -> Damage:
    """Return a file of any sort, a place in it and what is done there; most places are where something was written."""
    store = chance.choice(template.names)
    by_kind: dict[str, list[str]] = defaultdict(list)
    for file in template.files(store):
        by_kind[kind_of_file(file)].append(file)
    # Half of all goes to the log, in which everything is.
    kind = "commitlog" if chance.random() < 0.4 else chance.choice(sorted(by_kind))
    file = chance.choice(by_kind[kind])
    data = (template.folder / store / file).read_bytes()
    written = len(data.rstrip(b"\0")) if chance.random() < 0.9 else len(data)
    what = chance.choice(KINDS)
    if store == "killed" and file == min(by_kind["commitlog"]) and what == "remove":
        # Only a clean stop notes where the log began: after a kill a first file that is lost looks like an expired one.
        what = "cut"
    return Damage(store, file, what, chance.randrange(written + 1), chance.choice((1, 4, 20, 300, 5000)))


def apply(damage: Damage, root: Path) -> None:
    """Spoil the file of a copy."""
    path = root / damage.file
    if damage.kind == "remove":
        path.unlink()
        return
    data = bytearray(path.read_bytes())
    at, end = damage.at, min(damage.at + damage.length, len(data))
    chance = random.Random(repr(damage))
    if damage.kind == "cut":
        del data[at:]
    elif damage.kind == "zero":
        data[at:end] = bytes(end - at)
    elif damage.kind == "noise":
        data[at:end] = chance.randbytes(end - at)
    else:
        for place in range(at, min(at + (1 if damage.kind == "flip" else 3), len(data))):
            data[place] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


class Trial:
    """Opens one damaged store twice and compares the messages read with those put.

    Args:
        template: the messages put.
        damage: the damage, for the texts of failures.
        root: the damaged store.
    """

    def __init__(self, template: Template, damage: Damage, root: Path) -> None:
        self._template = template
        self._damage = damage
        self._root = root
        self._told: list[str] = []

    async def run(self) -> str:
        """Run the trial; return ``refused``, ``whole`` or ``named`` (messages are missing and the log says so)."""
        with self._listening():
            store = await self._open()
            if store is None:
                assert await self._open() is None, f"{self._damage}: refused once only"
                return "refused"
            try:
                found = await self._read_all(store)
                self._check_missing(found)
                await self._query(store, found)
                new = await self._write(store)
            finally:
                await store.stop()
            again = await self._open()
            assert again is not None, f"{self._damage}: {self._told}"
            try:
                second = await self._read_all(again)
                # It may find more: after a clean stop everything that should exist is known, and rebuilt.
                lost = sorted((found | new) - second)
                assert not lost, f"{self._damage}: another open does not find {lost[:20]}: {self._told}"
            finally:
                await again.stop()
        return "whole" if len(found) == sum(map(len, self._template.puts.values())) else "named"

    @contextmanager
    def _listening(self) -> Iterator[None]:
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: self._told.append(record.getMessage())  # type: ignore[method-assign]
        logger = logging.getLogger("rocketbroker")
        before = logger.propagate
        logger.propagate = False
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = before

    async def _open(self) -> MessageStore | None:
        """Return the open store, ``None`` when it was refused by the name of its file."""
        clock = FakeClock(self._template.clock.time_ms() + 60_000)
        store = make_store(self._root, clock)
        try:
            for table in _tables(self._root):
                table.load()
            await store.start()
        except (StoreError, ConfigError) as error:
            store._release()
            told = str(error)
        else:
            return store
        self._told.append(told)
        assert Path(self._damage.file).name.removesuffix(".bak") in told, (
            f"{self._damage}: refused without name: {told}"
        )
        return None

    async def _read_all(self, store: MessageStore) -> set[tuple[Queue, int]]:
        """Return every message that a consumer gets, each of them the right one."""
        found: set[tuple[Queue, int]] = set()
        for cold, queue in enumerate(self._template.puts):
            offset, end = store.queues.min_offset_in_queue(*queue), store.queues.max_offset_in_queue(*queue)
            while offset < end:
                result = await _fetched(store, queue, offset, 32, on_thread=bool(cold % 2))
                data = pulled(result)
                found |= {(queue, self._check(queue, record)) for record in _split(data)}
                assert result.next_begin_offset > offset, f"{self._damage}: {queue} stands still at {offset}: {result}"
                offset = result.next_begin_offset
        return found

    def _check(self, queue: Queue, record: bytes) -> int:
        try:
            message = decode_record(record, check_crc=True)
        except ValueError as error:
            raise AssertionError(f"{self._damage}: {queue} gives what is no record: {error}") from error
        number = message.queue_offset
        puts = self._template.puts[queue]
        assert (message.topic, message.queue_id) == queue, f"{self._damage}: {queue} gives {message}"
        expected = puts[number].body if number < len(puts) else message.body
        if not message.body.startswith(b"new "):
            assert number < len(puts), f"{self._damage}: {queue} gives an unknown message at {number}"
            assert message.body == expected, f"{self._damage}: {queue} gives a wrong body at {number}"
        return number

    def _check_missing(self, found: set[tuple[Queue, int]]) -> None:
        for queue, puts in self._template.puts.items():
            for number, put in enumerate(puts):
                if (queue, number) not in found:
                    told = self._is_named(queue, put) or self._has_no_checksum(put)
                    assert told, f"{self._damage}: {queue} lacks {number} {put}: {self._told}"

    def _has_no_checksum(self, put: Put) -> bool:
        """Return true if the damage is outside a body, in bytes that an unclean start has only in the log.

        They may say another topic or queue.
        """
        checked = [int(found[1]) for told in self._told for found in re.finditer(r"checked from offset (\d+)", told)]
        begin = put.physical_offset - put.physical_offset % LOG_FILE
        if self._damage.file != f"commitlog/{begin:020d}" or self._damage.store != "killed":
            return False
        original = self._template.folder / self._damage.store / self._damage.file
        record = original.read_bytes()[put.physical_offset - begin :][: put.size]
        first = self._damage.at - (put.physical_offset - begin)
        changed = range(first, first + {"flip": 1, "flips": 3}.get(self._damage.kind, self._damage.length))
        body_at = record.index(put.body)
        beside = [*range(body_at), *range(body_at + len(put.body), put.size)]
        return put.physical_offset >= min(checked) and any(at in changed for at in beside)

    def _is_named(self, queue: Queue, put: Put) -> bool:
        """Return true if the log names the damaged file, the message's file, or the begin or cut of the CommitLog."""
        topic, queue_id = queue
        log_file = f"commitlog/{put.physical_offset - put.physical_offset % LOG_FILE:020d}"
        damaged = str(Path(self._damage.file).parent if "consumequeue" in self._damage.file else self._damage.file)
        for told in self._told:
            if damaged in told or log_file in told or f"consumequeue/{topic}/{queue_id}/" in told:
                return True
            begin = re.search(r"begins at (\d+)", told)
            if begin is not None and put.physical_offset < int(begin[1]):
                return True
            cut = re.search(r"commitlog/(\d{20}): cut off at (\d+)", told)
            if cut is not None and int(cut[1]) + int(cut[2]) <= put.physical_offset:
                return True
        return False

    async def _query(self, store: MessageStore, found: set[tuple[Queue, int]]) -> None:
        """Query keys: each finds only messages with it, and all of them unless keys or index were damaged.

        No checksum covers either: an entry that was changed may find nothing, without a line in the log.
        """
        index_damaged = self._damage.file.startswith("index/")
        for queue, puts in self._template.puts.items():
            for number in range(0, len(puts), max(1, len(puts) // 4)):
                for key in puts[number].keys:
                    bodies = await self._bodies_with(store, queue[0], key)
                    known = puts[number].body in bodies or (queue, number) not in found
                    assert known or index_damaged or self._has_no_checksum(puts[number]), (
                        f"{self._damage}: {key} does not find {number} of {queue}: {self._told}"
                    )

    async def _bodies_with(self, store: MessageStore, topic: str, key: str) -> list[bytes]:
        """Query a key; each body that it finds was put with it. The properties may be damaged: no checksum has them."""
        result = await store.queries.query_message(topic, key, 64, 0, ALWAYS)
        bodies = [decode_record(record, check_crc=True).body for record in result.records]
        put = {each.body for queue, puts in self._template.puts.items() if queue[0] == topic for each in puts
               if key in each.keys}  # fmt: skip
        assert put.issuperset(bodies), f"{self._damage}: {key} of {topic} finds what was put without it"
        return bodies

    async def _write(self, store: MessageStore) -> set[tuple[Queue, int]]:
        """Write one new message to each queue; return their places."""
        new = set()
        for queue in self._template.puts:
            end = store.queues.max_offset_in_queue(*queue)
            body = b"new %d" % end
            result = store.appender.put_message(message(body, *queue))
            assert result.status is PutMessageStatus.PUT_OK, (self._damage, result)
            store.appender.dispatch()
            assert result.queue_offset == end, (self._damage, result, end)
            data = pulled(await _fetched(store, queue, end, 1, on_thread=False))
            assert decode_record(data, check_crc=True).body == body, self._damage
            new.add((queue, end))
        return new


async def _fetched(
    store: MessageStore, queue: Queue, offset: int, max_msgs: int, *, on_thread: bool
) -> GetMessageResult:
    """Read as a pull does, of files that are in the page cache or are said not to be."""
    with pytest.MonkeyPatch.context() as patch:
        if on_thread:
            store.fetcher.checked_reader.cached.forget()
            patch.setattr(MappedFile, "is_cached", lambda *_arguments: False)
        return await completed(store.fetcher.fetch(GetMessageRequest(*queue, offset, max_msgs, 1 << 20)))


def _split(data: bytes) -> Sequence[bytes]:
    """Return the records back to back, by their lengths; the rest as one where a length makes no sense."""
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if not 0 < size <= len(data) - at:
            size = len(data) - at
        found.append(data[at : at + size])
        at += size
    return found
