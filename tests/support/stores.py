"""Stores with small files for tests, and messages to put into them."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rocketbroker.codec.message.alike_messages import alike_messages
from rocketbroker.codec.message.message_batch import BatchParts, encode_batch
from rocketbroker.codec.message.message_const import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG, host_flags
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import FoundProperties, encode_properties
from rocketbroker.codec.remoting.bodies.topic_config import BATCH_CQ, QUEUE_TYPE, TopicConfig
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.put_message import (
    BatchRun,
    MessageExtBrokerInner,
    MessageRun,
    PutMessageResult,
    PutMessageStatus,
    outcome_of,
)
from rocketbroker.store.dispatch.commit_log_dispatcher import MessageArrivingListener, NoListener
from rocketbroker.store.logfile.allocate_mapped_file_service import AllocateMappedFileService
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult
from tests.support.fakes import FakeClock

V4_HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
V6_HOST = bytes([0xFD] + [0] * 14 + [1]) + (10911).to_bytes(4, "big")
LOG_FILE = 65536
QUEUE_FILE = 1200
BATCH_QUEUE_FILE = 4600
ALWAYS = 2**62


class Waiter:
    """A consumer that waits for messages."""

    waiting = True

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, int]] = []

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        self.heard.append((topic, queue_id, max_offset))


def store_config(root: Path, **settings) -> MessageStoreConfig:
    """Return the settings with the small files that the recorded stores have; nothing is flushed unless asked.

    A put waits for its file on a busy machine, as most tests do not look at the result of each.
    """
    small = {
        "mapped_file_size_commit_log": LOG_FILE,
        "mapped_file_size_consume_queue": QUEUE_FILE,
        "mapper_file_size_batch_consume_queue": BATCH_QUEUE_FILE,
        "max_hash_slot_num": 50,
        "max_index_num": 200,
        "flush_interval_commit_log": 60_000,
        "flush_interval_consume_queue": 60_000,
        "sync_flush_timeout": 600_000,
        "os_page_cache_busy_time_out_mills": 10_000,
    }
    return MessageStoreConfig(**({"store_path_root_dir": str(root)} | small | settings))


def make_store(
    root: Path,
    clock: FakeClock | None = None,
    listener: MessageArrivingListener | None = None,
    store_host: bytes = V4_HOST,
    batch_topics: Iterable[str] = (),
    file_system: FileSystem = LOCAL,
    **settings,
) -> MessageStore:
    """Return a store that is not started; ``batch_topics`` have ``queue.type=BatchCQ``."""
    config = store_config(root, **settings)
    topics = batch_topic_table(batch_topics)
    return MessageStore(config, store_host, listener or NoListener(), clock or FakeClock(), file_system, topics)


def batch_topic_table(names: Iterable[str]) -> dict[str, TopicConfig]:
    """Return the topics of batches by name."""
    return {name: TopicConfig(name, attributes={QUEUE_TYPE: BATCH_CQ}) for name in names}


def inner_batch(*bodies: bytes, topic: str = "Batches", queue_id: int = 0, key: str = "U") -> MessageExtBrokerInner:
    """Return a batch as a send makes one record of it, to put by ``put_inner_batch``."""
    return message(
        encode_batch([(0, body, b"") for body in bodies]),
        topic,
        queue_id,
        sys_flag=INNER_BATCH_FLAG | NEED_UNWRAP_FLAG,
        properties={"UNIQ_KEY": key, "INNER_NUM": str(len(bodies))},
    )


def batch(*bodies: bytes) -> BatchParts:
    """Return a batch to put, without flags and properties."""
    return BatchParts([0] * len(bodies), bodies, [b""] * len(bodies))


def message_run(*bodies: bytes, topic: str = "Topic", queue_ids: Sequence[int]) -> MessageRun:
    """Return messages that came together; ``U<body>``, up to a blank, is the unique id of each."""
    keys = [b"U" + body.partition(b" ")[0] for body in bodies]
    properties = [b"UNIQ_KEY\x01%b\x02" % key for key in keys]
    found: list[FoundProperties] = [(None, key, None, False) for key in keys]
    return MessageRun(topic, queue_ids, bodies, properties, [1] * len(bodies), found, 0, 0, V4_HOST, 0)


def batch_run(*batches: Sequence[bytes], topic: str = "Topic", queue_ids: Sequence[int]) -> BatchRun:
    """Return batches that came together, given by their bodies of one length; ``U<body>`` is the unique id of each."""
    messages = alike_messages(
        [encode_batch((0, body, b"UNIQ_KEY\x01U%b\x02" % body) for body in each) for each in batches]
    )
    assert messages is not None
    return BatchRun(topic, queue_ids, list(map(len, batches)), [1] * len(batches), messages, 0, V4_HOST, 0)


def message(body: bytes = b"body", topic: str = "Topic", queue_id: int = 0, **fields) -> MessageExtBrokerInner:
    """Return a message to put; properties may be a dict, hosts are IPv4 unless given."""
    properties = fields.pop("properties", b"")
    raw = encode_properties(properties) if isinstance(properties, dict) else properties
    born_host = fields.pop("born_host", V4_HOST)
    sys_flag = fields.pop("sys_flag", 0) | host_flags(born_host, fields.pop("store_host", V4_HOST))
    return MessageExtBrokerInner(topic, queue_id, body, raw, born_host=born_host, sys_flag=sys_flag, **fields)


async def flushed(store: MessageStore, result: PutMessageResult) -> str:
    """Wait until a message is on disk; return why it is not, empty when it is."""
    return (await outcome_of(partial(store.flusher.acknowledge, result))).reason


def put_forged(store: MessageStore, record: bytes) -> int:
    """Store a copy of a record in the body of a message, with the offset that it will have; return that offset."""
    # A body comes 88 bytes after the begin of its record; the offset is at 28.
    at = store.commit_log.max_offset + 88
    forged = record[:28] + at.to_bytes(8, "big") + record[36:]
    assert store.appender.put_message(message(forged, "Carrier")).status is PutMessageStatus.PUT_OK
    store.appender.dispatch()
    return at


def read_queue(store: MessageStore, topic: str, queue_id: int, offset: int = 0) -> list[MessageExt]:
    """Return all messages of a queue from an offset on, by as many pulls as it takes."""
    found: list[MessageExt] = []
    end = store.queues.max_offset_in_queue(topic, queue_id)
    while offset < end:
        result = fetch(store, topic, queue_id, offset)
        assert result.next_begin_offset > offset, result
        found += decode_messages(pulled(result), decompress=False)
        offset = result.next_begin_offset
    return found


def fetch(
    store: MessageStore,
    topic: str,
    queue_id: int,
    offset: int,
    max_msgs: int = 32,
    max_bytes: int = 1 << 20,
    **wanted: Any,
) -> GetMessageResult:
    """Read messages as a pull does; ``wanted`` has ``matches`` or ``message_filter``."""
    found = store.fetcher.fetch(GetMessageRequest(topic, queue_id, offset, max_msgs, max_bytes, **wanted))
    if isinstance(found, GetMessageResult):
        return found
    # Not in the page cache, or a file system that cannot tell, as tmpfs.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, completed(found)).result()


async def completed(found: GetMessageResult | Awaitable[GetMessageResult]) -> GetMessageResult:
    """Return a result, after its messages have been read."""
    return found if isinstance(found, GetMessageResult) else await found


def pulled(result: GetMessageResult) -> bytes:
    """Return the records that a consumer gets."""
    return b"".join(result.buffers)


def count_as_far_back(store: MessageStore) -> None:
    """Make all messages count as too far from the log end to be in memory."""
    store.reader._memory_bytes = 0


def crash_copy(root: Path, into: Path) -> Path:
    """Copy the current files, as a killed broker would leave them.

    The broker may run: a file that it renames or removes before its copy is made is left out.
    """
    shutil.copytree(root, into, copy_function=_copy_if_there)
    return into


def _copy_if_there(source: str, target: str) -> None:
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def open_below(root: Path) -> list[str]:
    """Return the paths below a folder that this process has open, sorted, one for each descriptor.

    Those of removed files end in "(deleted)". Other tests may have files open that the collector closes at any time.
    """
    return sorted(path for path in map(_open_path, Path("/proc/self/fd").iterdir()) if Path(path).is_relative_to(root))


def _open_path(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except FileNotFoundError:
        return ""  # closed meanwhile


@contextmanager
def open_log(directory: Path, file_size: int = 4096, store_host: bytes = V4_HOST, step: int = 0) -> Iterator[CommitLog]:
    """A CommitLog without a store; blocks are allocated in steps of ``step`` bytes, or for a whole file."""
    service = AllocateMappedFileService()
    log = CommitLog(MappedFileQueue(directory, file_size, step or file_size), service, store_host)
    try:
        yield log
    finally:
        service.stop()
        log.queue.close()


def refuse(code: int) -> Callable[..., None]:
    """Return a function that fails like a disk, with this error number."""

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail
