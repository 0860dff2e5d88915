"""Stores with something of everything, of any size, the same for the same seed; filled through MessageStore.

Topics of very different traffic over a day, hot keys, uneven queues, tags; retries that come later and later, dead
letters, delayed messages; bodies compressed in each way, IPv6 hosts of producers and of the broker (which is restarted
with another address), topics too long for records of version 1, batches.
"""

import asyncio
import itertools
import math
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import lz4.frame
import numpy as np
import zstandard

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.persist.config_manager import AnyConfigManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_batch import BatchParts
from rocketbroker.codec.message.message_const import (
    COMPRESSED_FLAG,
    COMPRESSION_LZ4_TYPE,
    COMPRESSION_ZLIB_TYPE,
    COMPRESSION_ZSTD_TYPE,
    host_flags,
)
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.config import BrokerConfig
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock
from tests.support.stores import V4_HOST, V6_HOST, make_store

BEGIN_MS: Final = 1_795_255_000_000
DAY_MS: Final = 24 * 3_600_000
#: Topics with their part of the traffic and their queues.
TOPICS: Final = {
    "orders": (30, 8),
    "payments": (18, 8),
    "clicks": (25, 16),
    "inventory": (9, 4),
    "mail": (6, 2),
    "audit-log": (4, 1),
    "telemetry_" + "x" * 150: (3, 4),  # a topic length of two bytes
    "Bestätigungen": (1, 3),
}
GROUPS: Final = {"billing": "payments", "shipping": "orders", "mailer": "mail"}
_RETRY_PART, _DEAD_PART, _DELAYED_PART, _BATCH_PART = 0.02, 0.002, 0.01, 0.004
_CHUNK: Final = 10_000
_BODIES: Final = 2_000
_PRODUCERS: Final = (*(bytes([10, 0, 0, each, 0, 0, 0xC3, each]) for each in range(1, 7)), V6_HOST)
_RETRY_DELAYS_MS: Final = (10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000)


class Body(NamedTuple):
    """Bytes as they are stored, and the flags that say how."""

    data: bytes
    sys_flag: int


class MixedStore:
    """Fills a store.

    Args:
        root: where; it must not exist.
        messages: how many are stored.
        seed: of all that is chance.
        span_ms: between the first and the last store time.
        settings: of the store, such as ``mapped_file_size_commit_log``.
    """

    def __init__(self, root: Path, messages: int, seed: int = 1, span_ms: int = DAY_MS, **settings: Any) -> None:
        self.root = root
        self.messages = messages
        self.settings = {
            "mapped_file_size_commit_log": 16 << 20,
            "mapped_file_size_consume_queue": 60_000,  # most queues are short, and files are allocated whole
            "max_hash_slot_num": 50_000,
            "max_index_num": 200_000,
        } | settings
        self._chance = np.random.default_rng(seed)
        self._span_ms = span_ms
        self._bodies = self._make_bodies()
        self._names = list(TOPICS)
        self._weights = np.array([weight for weight, _ in TOPICS.values()]) / sum(w for w, _ in TOPICS.values())
        self._clock = FakeClock(BEGIN_MS)
        self._host = V4_HOST
        #: Number of messages put into each queue.
        self.counts: Counter[tuple[str, int]] = Counter()

    def make(self) -> "MixedStore":
        """Fill the store and leave it as after a clean stop."""
        with asyncio.Runner() as runner:
            runner.run(self._make())
        self._write_tables()
        return self

    async def _make(self) -> None:
        steps, done = self._steps(), 0
        # The second host makes other records: 12 bytes longer, with another flag.
        for host, until in ((V4_HOST, self.messages * 2 // 3), (V6_HOST, self.messages)):
            self._host = host
            store = make_store(self.root, self._clock, store_host=host, **self.settings)
            await store.start()
            while done < until:
                for step in itertools.islice(steps, 64):
                    if done < until:
                        done += self._put(store, step, until - done)
                store.appender.dispatch()
            await store.stop()

    def _make_bodies(self) -> list[Body]:
        """Return bodies of very different sizes; half of the large ones are compressed."""
        lengths = np.minimum(self._chance.lognormal(4.6, 1.0, _BODIES), 60_000).astype(int)
        words = [b"%x" % value for value in self._chance.integers(0, 1 << 20, 500)]
        found = []
        for number, length in enumerate(lengths.tolist()):
            chosen = self._chance.integers(0, len(words), length // 4 + 1)
            text = b" ".join(words[each] for each in chosen)[:length]
            found.append(_compressed(text, number) if length > 300 and number % 2 else Body(text, 0))
        return [*found, Body(b"", 0)]

    def _steps(self) -> Iterator["_Step"]:
        """Return the steps in order; more than needed, since a step may be a batch."""
        number = 0
        for first in itertools.count(0, _CHUNK):
            rows = zip(*(column.tolist() for column in self._columns(first, _CHUNK)), strict=True)
            for row in rows:
                number += 1
                yield _Step(number, *row)

    def _columns(self, first: int, count: int) -> list[np.ndarray]:
        """Return the values that differ from message to message, by column."""
        chance = self._chance
        place = np.minimum((np.arange(first, first + count) + 0.5) / self.messages, 1)
        # More traffic in the middle of the day than at its ends.
        day = place + np.sin(place * 2 * math.pi) * 0.11
        times = BEGIN_MS + (day * self._span_ms).astype(np.int64)
        lags = np.minimum(chance.lognormal(1.2, 1.3, count), 90_000).astype(np.int64) - 1
        keys = np.minimum(chance.zipf(1.35, count), 1 << 40)
        return [
            np.maximum.accumulate(times),
            chance.choice(len(self._names), count, p=self._weights),
            chance.random(count),
            chance.integers(0, len(self._bodies), count),
            keys,
            lags,
            chance.integers(0, 1 << 30, count),
        ]

    def _write_tables(self) -> None:
        """Write topics, groups and offsets: one group is far behind, one has consumed all."""
        folder, config = self.root / "config", BrokerConfig()
        topics = TopicConfigManager(folder / "topics.json", config, self._clock)
        groups = SubscriptionGroupManager(folder / "subscriptionGroup.json", config, self._clock)
        offsets = ConsumerOffsetManager(folder / "consumerOffset.json", self._clock)
        for topic in {topic for topic, _ in self.counts}:
            queues = max(queue_id for name, queue_id in self.counts if name == topic) + 1
            topics.update(TopicConfig(topic, queues, queues))
        for part, (group, topic) in zip((1.0, 0.97, 0.4), GROUPS.items(), strict=True):
            groups.find(group)
            for (name, queue_id), count in sorted(self.counts.items()):
                if name == topic:
                    offsets.commit(group, topic, queue_id, int(count * part))
        folder.mkdir(exist_ok=True)
        tables: tuple[AnyConfigManager, ...] = (topics, groups, offsets)
        for table in tables:
            table.path.write_bytes(table.encode())

    def _put(self, store: MessageStore, step: "_Step", most: int) -> int:
        """Put the message of a step, or a batch; return how many messages that were."""
        self._clock.advance(max(step.time_ms - self._clock.time_ms(), 0) / 1000)
        message, count = self._message(step), min(step.spice % 20 + 2, most)
        if step.chance > 1 - _BATCH_PART and count > 1:
            return self._put_batch(store, step, message, count)
        self._count(store.appender.put_message(message), message, 1)
        return 1

    def _put_batch(self, store: MessageStore, step: "_Step", message: MessageExtBrokerInner, count: int) -> int:
        """Put a batch of small messages to the queue of a message."""
        bodies = [b"%d of batch %d" % (each, step.number) * (each % 3 + 1) for each in range(count)]
        raw = [b"UNIQ_KEY\x01B%030X\x02KEYS\x01b%d\x02" % (step.number * 100 + each, each) for each in range(count)]
        message.body, message.properties, message.sys_flag = b"", b"", message.sys_flag & ~COMPRESSED_FLAG & 0xFF
        self._count(store.appender.put_messages(message, BatchParts([0] * count, bodies, raw)), message, count)
        return count

    def _count(self, result: PutMessageResult, message: MessageExtBrokerInner, count: int) -> None:
        assert result.status is PutMessageStatus.PUT_OK, result
        self.counts[message.topic, message.queue_id] += count

    def _message(self, step: "_Step") -> MessageExtBrokerInner:
        topic = self._names[step.topic]
        body = self._bodies[step.body]
        queues = TOPICS[topic][1]
        # Orders of one customer go to one queue, so that hot customers make hot queues.
        queue_id = step.key % queues if topic == "orders" else step.spice % queues
        properties = b"UNIQ_KEY\x01%032X\x02" % step.number
        if step.spice % 10:
            properties += b"KEYS\x01%s-%d%s\x02" % (
                topic[:1].encode(),
                step.key,
                b" all" if step.spice % 50 == 1 else b"",
            )
        if step.spice % 4:
            properties += b"TAGS\x01%s\x02" % (b"new", b"change", "gelöscht".encode())[step.spice % 3]
        fields: dict[str, Any] = {"born_timestamp": step.time_ms - step.lag_ms}
        if step.chance < _DEAD_PART + _RETRY_PART + _DELAYED_PART:
            topic, queue_id, more = self._special(step, topic, queue_id)
            fields |= more
            properties += fields.pop("properties")
        host = _PRODUCERS[step.spice % len(_PRODUCERS)]
        return MessageExtBrokerInner(
            topic,
            queue_id,
            body.data,
            properties,
            flag=step.spice % 7,
            sys_flag=body.sys_flag | host_flags(host, self._host),
            born_host=host,
            **fields,
        )

    def _special(self, step: "_Step", topic: str, queue_id: int) -> tuple[str, int, dict[str, Any]]:
        """Retried, given up or delayed."""
        if step.chance < _DELAYED_PART:
            level = step.spice % 3 + 3
            real = b"DELAY\x01%d\x02REAL_TOPIC\x01%s\x02REAL_QID\x01%d\x02" % (level, topic.encode(), queue_id)
            return RMQ_SYS_SCHEDULE_TOPIC, level - 1, {"properties": real}
        group, origin = list(GROUPS.items())[step.spice % len(GROUPS)]
        properties = b"RETRY_TOPIC\x01%s\x02" % origin.encode()
        if step.chance < _DELAYED_PART + _DEAD_PART:
            born = step.time_ms - 3_600_000
            return f"%DLQ%{group}", 0, {"properties": properties, "reconsume_times": 17, "born_timestamp": born}
        # Half of those that fail succeed at the next attempt.
        attempt = min(int(-math.log2(1 - step.chance % 0.001 * 1000 + 1e-9)) + 1, len(_RETRY_DELAYS_MS))
        born = step.time_ms - sum(_RETRY_DELAYS_MS[:attempt]) - step.lag_ms
        return f"%RETRY%{group}", 0, {"properties": properties, "reconsume_times": attempt, "born_timestamp": born}


class _Step(NamedTuple):
    """One message to be put; a batch may be put in its place."""

    number: int
    time_ms: int
    topic: int
    chance: float
    body: int
    key: int
    lag_ms: int
    spice: int


def _compressed(text: bytes, number: int) -> Body:
    """As clients compress: zlib, LZ4 frames and Zstandard in turn, and zlib as clients before 5.0 flag it."""
    ways = (
        (zlib.compress(text), COMPRESSION_ZLIB_TYPE),
        (lz4.frame.compress(text), COMPRESSION_LZ4_TYPE),
        (zstandard.compress(text), COMPRESSION_ZSTD_TYPE),
        (zlib.compress(text), 0),
    )
    data, kind = ways[number // 2 % len(ways)]
    return Body(data, COMPRESSED_FLAG | kind)
