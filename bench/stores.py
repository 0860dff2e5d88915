"""Stores for measurements, filled through MessageStore with messages of one shape."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.harness import BenchError
from bench.measure import room
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_batch import BatchParts
from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageStatus
from rocketbroker.store.dispatch.commit_log_dispatcher import NoListener
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.recovery.queue_recovery import QUEUE_ENDS_FILE
from tests.support.fakes import FakeClock

NUMBER: Final = b"#########"
HOST: Final = host_bytes("127.0.0.1", 10911)
QUEUES: Final = 4
TOPICS: Final = ("BenchA", "BenchB", "BenchC", "BenchD")
#: Properties that the Java client and the broker set on a message with one key and one tag.
PROPERTIES: Final = (
    b"KEYS\x01order-" + NUMBER + b"\x02UNIQ_KEY\x017F00000112671B28CDFA000" + NUMBER
    + b"\x02WAIT\x01true\x02TAGS\x01T\x02"
    b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
)  # fmt: skip
# Messages of one batch, which has one queue, and batches between two dispatches.
_BATCH, _TOGETHER = 32, 32
_MOST_BATCH_BYTES = 1 << 20
# Recovery trusts a checkpoint time only up to this many ms before it.
_CHECKPOINT_SAFETY_MS = 3000


def body_of(size: int) -> bytes:
    """Return a body of ``size`` bytes, at least 9, that begins with the message's number."""
    return (NUMBER + b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size]


@dataclass(frozen=True)
class Messages:
    """Shape of messages that go to the queues of all topics in turn, a batch each.

    Attributes:
        body, properties: those of each message; ``NUMBER`` is replaced by its number.
        per_ms: messages with the same store time.
        age_ms: age of the last message.
    """

    body: bytes
    properties: bytes = PROPERTIES
    topics: tuple[str, ...] = TOPICS
    queues: int = QUEUES
    per_ms: int = 20
    age_ms: int = 60_000

    @property
    def record_size(self) -> int:
        """Bytes of each record in the log."""
        topic = self.topics[0].encode()
        return len(encode_record(0, 0, 0, 0, 0, 0, HOST, 0, HOST, 0, 0, self.body, topic, self.properties))

    def batch(self, first: int, count: int) -> BatchParts:
        """Return the messages from number ``first`` on."""
        texts = [b"%09d" % number for number in range(first, first + count)]
        bodies = [self.body.replace(NUMBER, text) for text in texts]
        properties = [self.properties.replace(NUMBER, text) for text in texts]
        return BatchParts([0] * count, bodies, properties, (len(self.body), len(self.properties)))


@dataclass(frozen=True)
class Filled:
    """A store with ``count`` messages of one shape; ``end`` is the CommitLog offset after the last one."""

    config: MessageStoreConfig
    messages: Messages
    count: int
    first_timestamp: int
    end: int

    @property
    def root(self) -> Path:
        """Its folder."""
        return Path(self.config.store_path_root_dir)

    def mark_crashed(self, known: float, *, index_known: bool = True) -> None:
        """Leave the store as after a kill.

        Args:
            known: share of the messages that are on disk according to the checkpoint, 0 to 1.
            index_known: True if the checkpoint covers the index too. A broker that has neither filled an index file
                nor stopped cleanly since its start has no such checkpoint.
        """
        timestamp = self.first_timestamp + int(self.count * known) // self.messages.per_ms + _CHECKPOINT_SAFETY_MS
        checkpoint = StoreCheckpoint(timestamp, timestamp, timestamp if index_known else 0)
        self.config.checkpoint_path.write_bytes(checkpoint.encode())
        self.config.abort_path.write_bytes(str(os.getpid()).encode())
        # Recovery trusts the notes of a clean stop, whatever the checkpoint says.
        for path in self.config.config_dir.glob(f"{QUEUE_ENDS_FILE}*"):
            path.unlink()


def count_for(log_bytes: int, messages: Messages, file_size: int = 1 << 30) -> int:
    """Return the number of messages that about fill ``log_bytes`` of log, at least 1; a whole file has no more."""
    files, rest = divmod(log_bytes, file_size)
    per_file = (file_size - 8) // messages.record_size
    return max(files * per_file + min(rest // messages.record_size, per_file), 1)


def check_room(folder: Path, count: int, messages: Messages) -> None:
    """Raise ``BenchError`` if a folder has no room for a store: log, queues and at most three index entries each."""
    need = count * (messages.record_size + 20 + 3 * 21)
    if need > room(folder):
        raise BenchError(f"{folder} has no room for {need >> 20:,} MiB; free some space or use --dir")


def fill(root: Path, count: int, messages: Messages, **settings: Any) -> Filled:
    """Write a store as after a clean stop, with RocketMQ's file sizes unless ``settings`` has others."""
    config = MessageStoreConfig(store_path_root_dir=str(root), **settings)
    first = SystemClock().time_ms() - count // messages.per_ms - messages.age_ms
    end = asyncio.run(_put_all(config, count, messages, FakeClock(first)))
    # The store makes the next file of the log ahead; a slave begins at the last file.
    for path in config.commit_log_dir.iterdir():
        if int(path.name) >= end:
            path.unlink()
    topics = TopicConfigManager(root / "config" / "topics.json", BrokerConfig(), SystemClock())
    for topic in messages.topics:
        topics.update(TopicConfig(topic, messages.queues, messages.queues))
    topics.path.write_bytes(topics.encode())
    return Filled(config, messages, count, first, end)


async def _put_all(config: MessageStoreConfig, count: int, messages: Messages, clock: FakeClock) -> int:
    """Put all messages, and return the end of the log."""
    begin = clock.time_ms()
    store = MessageStore(config, HOST, NoListener(), clock)
    await store.start()
    try:
        each = min(_BATCH, max(_MOST_BATCH_BYTES // messages.record_size, 1))
        for number, first in enumerate(range(0, count, each)):
            clock.advance((begin + first // messages.per_ms - clock.time_ms()) / 1000)
            topic, queue = messages.topics[number % len(messages.topics)], number // len(messages.topics)
            message = MessageExtBrokerInner(
                topic, queue % messages.queues, b"", born_timestamp=clock.time_ms(), born_host=HOST
            )
            result = store.appender.put_messages(message, messages.batch(first, min(each, count - first)))
            if result.status is not PutMessageStatus.PUT_OK:
                raise BenchError(f"message {first:,} cannot be stored: {result.reason}")
            if number % _TOGETHER == 0:
                store.appender.dispatch()
                await asyncio.sleep(0)
        store.appender.dispatch()
        return store.commit_log.max_offset
    finally:
        await store.stop()
