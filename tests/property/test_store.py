"""Any order of puts, batches, dispatches, deletions, stops and kills, against lists of what was put."""

import asyncio
import itertools
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rocketbroker.codec.message.message_batch import BatchParts
from rocketbroker.codec.message.message_decoder import decode_record, record_size
from rocketbroker.store.commitlog.put_message import PutMessageStatus
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock
from tests.support.stores import (
    ALWAYS,
    LOG_FILE,
    V4_HOST,
    V6_HOST,
    batch_run,
    crash_copy,
    make_store,
    message,
    message_run,
    read_queue,
)

topics = st.sampled_from(["A", "B", "%RETRY%" + "g" * 130])
queue_ids = st.integers(0, 1)
# Some so long that a file of the log ends with each second one.
sizes = st.one_of(st.integers(0, 300), st.integers(0, 40_000))


class StoreMachine(RuleBasedStateMachine):
    """The model: what each queue holds in order, what is readable, and by which key each message is found."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="store-machine-"))
        self.roots = (self.folder / f"store{number}" for number in itertools.count())
        self.clock = FakeClock()
        self.numbers = itertools.count()
        self.put_bodies: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.readable: dict[tuple[str, int], int] = defaultdict(int)
        self.by_key: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.records: dict[int, bytes] = {}
        self.forgotten: set[int] = set()
        self.log_end = 0
        self.root = next(self.roots)
        self.store = self.opened()

    def opened(self) -> MessageStore:
        store = make_store(self.root, self.clock)
        self.runner.run(store.start())
        return store

    def teardown(self) -> None:
        self.runner.run(self.store.stop())
        self.runner.close()
        shutil.rmtree(self.folder)

    # -- the model

    def entered(self, topic: str, queue_id: int, body: bytes, offset: int, size: int, keys: list[str]) -> None:
        assert offset >= self.log_end
        assert offset == self.log_end or offset % LOG_FILE == 0
        assert offset // LOG_FILE == (offset + size + 7) // LOG_FILE, "a record and the mark behind it lie in one file"
        self.log_end = offset + size
        self.put_bodies[topic, queue_id].append(body)
        for key in dict.fromkeys(keys):
            self.by_key[topic, key].append(offset)
        self.records[offset] = body

    def dispatched(self) -> None:
        for queue, bodies in self.put_bodies.items():
            self.readable[queue] = len(bodies)

    # -- what happens

    @rule(topic=topics, queue_id=queue_ids, size=sizes, ipv6=st.booleans(), key=st.integers(0, 3), tag=st.booleans())
    def put(self, topic: str, queue_id: int, size: int, ipv6: bool, key: int, tag: bool) -> None:
        number = next(self.numbers)
        self.clock.advance(number % 3 / 2)
        body = b"%d " % number + bytes(size)
        keys = [f"U{number}", f"k{key}", f"k{key}"]
        properties = {"UNIQ_KEY": keys[0], "KEYS": " ".join(keys[1:])} | ({"TAGS": "t"} if tag else {})
        born_host = V6_HOST if ipv6 else V4_HOST
        result = self.store.appender.put_message(
            message(body, topic, queue_id, properties=properties, born_host=born_host)
        )
        assert result.status is PutMessageStatus.PUT_OK
        assert result.queue_offset == len(self.put_bodies[topic, queue_id])
        self.entered(topic, queue_id, body, result.physical_offset, result.size, keys)

    @rule(topic=topics, queue_id=queue_ids, each=st.lists(sizes, min_size=1, max_size=6))
    def put_batch(self, topic: str, queue_id: int, each: list[int]) -> None:
        first = next(self.numbers)
        bodies = [b"%d.%d " % (first, number) + bytes(size) for number, size in enumerate(each)]
        properties = [b"UNIQ_KEY\x01U%d.%d\x02" % (first, number) for number in range(len(each))]
        parts = BatchParts(range(len(each)), bodies, properties)
        lengths = [record_size(len(body), len(topic), len(raw)) for _, body, raw in parts.messages()]
        result = self.store.appender.put_messages(message(b"", topic, queue_id), parts)
        if sum(lengths) + 8 > LOG_FILE:
            assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
            return
        assert result.status is PutMessageStatus.PUT_OK
        assert result.queue_offset == len(self.put_bodies[topic, queue_id])
        offsets = result.physical_offsets
        for number, (body, offset, length) in enumerate(zip(bodies, offsets, lengths, strict=True)):
            self.entered(topic, queue_id, body, offset, length, [f"U{first}.{number}"])
        self.dispatched()

    @rule(topic=topics, queues=st.lists(queue_ids, min_size=1, max_size=6), size=sizes)
    def put_run(self, topic: str, queues: list[int], size: int) -> None:
        first = next(self.numbers)
        bodies = [b"%d:%d " % (first, number) + bytes(size) for number in range(len(queues))]
        result = self.store.appender.put_run(message_run(*bodies, topic=topic, queue_ids=queues))
        if result is None:
            return
        length = result.size // len(queues)
        for number, queue_id in enumerate(queues):
            assert result.queue_offsets[number] == len(self.put_bodies[topic, queue_id])
            place = result.physical_offsets[number]
            self.entered(topic, queue_id, bodies[number], place, length, [f"U{first}:{number}"])

    @rule(topic=topics, queues=st.lists(queue_ids, min_size=1, max_size=4), count=st.integers(1, 4))
    def put_batches(self, topic: str, queues: list[int], count: int) -> None:
        first = next(self.numbers)
        batches = [[b"%06d-%d-%d" % (first, number, each) for each in range(count)] for number in range(len(queues))]
        result = self.store.appender.put_batches(batch_run(*batches, topic=topic, queue_ids=queues))
        if result is None:
            return
        places = iter(result.physical_offsets)
        length = result.size // len(result.physical_offsets)
        for queue_id, queue_offset, bodies in zip(queues, result.queue_offsets, batches, strict=True):
            assert queue_offset == len(self.put_bodies[topic, queue_id])
            for body in bodies:
                self.entered(topic, queue_id, body, next(places), length, [f"U{body.decode()}"])
        self.dispatched()

    @rule()
    def dispatch(self) -> None:
        self.store.appender.dispatch()
        self.dispatched()

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        self.runner.run(self.store.deletion.delete_topics({topic}))
        self.dispatched()
        for queue in [queue for queue in self.put_bodies if queue[0] == topic]:
            del self.put_bodies[queue]
            self.readable.pop(queue, None)
        # Their keys are found until the index is rebuilt.
        for key in [key for key in self.by_key if key[0] == topic]:
            self.forgotten.update(self.by_key.pop(key))

    @rule()
    def sync(self) -> None:
        self.store.flusher.flush()
        self.store.queue_flusher.flush()

    @rule()
    def stop_and_start(self) -> None:
        self.runner.run(self.store.stop())
        assert not (self.root / "abort").exists()
        self.store = self.opened()
        self.dispatched()

    @rule()
    def kill_and_start(self) -> None:
        old, root = self.store, next(self.roots)
        crash_copy(self.root, root)
        self.root = root
        self.store = self.opened()
        self.dispatched()
        self.runner.run(old.stop())

    @rule(folder=st.sampled_from(["consumequeue", "index"]), clean=st.booleans())
    def start_without(self, folder: str, clean: bool) -> None:
        self.runner.run(self.store.stop())
        shutil.rmtree(self.root / folder, ignore_errors=True)
        if not clean:
            (self.root / "abort").write_text("1")
        self.store = self.opened()
        self.dispatched()

    # -- what holds

    @invariant()
    def queues_hold_what_was_put(self) -> None:
        assert self.store.commit_log.max_offset == self.log_end or not self.records
        for (topic, queue_id), bodies in self.put_bodies.items():
            count = self.readable[topic, queue_id]
            assert self.store.queues.max_offset_in_queue(topic, queue_id) == count
            # The last ones are enough each time; all of them are covered by a start.
            first = max(0, count - 40)
            found = read_queue(self.store, topic, queue_id, first)
            assert [one.body for one in found] == bodies[first:count]
            assert [one.queue_offset for one in found] == list(range(first, count))

    @rule(number=st.integers(0, 1000))
    def look_one_up(self, number: int) -> None:
        offsets = list(self.records)
        if offsets:
            offset = offsets[number % len(offsets)]
            record = self.store.commit_log.record(offset)
            assert record is not None
            assert decode_record(record, check_crc=True).body == self.records[offset]

    @rule(number=st.integers(0, 1000))
    def query_one(self, number: int) -> None:
        self.dispatch()
        names = list(self.by_key)
        if names:
            topic, key = names[number % len(names)]
            found = self.runner.run(self.store.queries.query_message(topic, key, 64, 0, ALWAYS)).records
            offsets = [decode_record(record).commit_log_offset for record in found]
            assert [at for at in offsets if at not in self.forgotten] == self.by_key[topic, key][::-1][:64]


TestStore = pytest.mark.timeout(300)(StoreMachine.TestCase)
TestStore.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
