"""Batches of any size and single messages in any order, over stops, kills and lost folders, against lists of them."""

import asyncio
import itertools
import shutil
import tempfile
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rocketbroker.audit.store_audit import audit
from rocketbroker.client.core.pull_result import unwrap_inner_batches
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.store.commitlog.put_message import PutMessageStatus
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock
from tests.support.stores import batch, crash_copy, fetch, inner_batch, make_store, message, pulled, store_config

pytestmark = [
    pytest.mark.long,
    pytest.mark.proves("When the store is opened", "3. queues of batches"),
]

TOPICS = ("Batches", "More")
FILE = 46 * 4
topics = st.sampled_from(TOPICS)
counts = st.one_of(st.integers(2, 5), st.integers(2, 300))


class BatchMachine(RuleBasedStateMachine):
    """The model: the bodies of each queue by queue offset, and where each record begins."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="batch-machine-"))
        self.roots = (self.folder / f"store{number}" for number in itertools.count())
        self.clock = FakeClock()
        self.numbers = itertools.count()
        self.bodies: dict[str, list[bytes]] = defaultdict(list)
        self.bases: dict[str, list[int]] = defaultdict(list)
        self.root = next(self.roots)
        self.store = self.opened()

    def opened(self) -> MessageStore:
        store = make_store(self.root, self.clock, batch_topics=TOPICS, mapper_file_size_batch_consume_queue=FILE)
        self.runner.run(store.start())
        return store

    def teardown(self) -> None:
        self.runner.run(self.store.stop())
        found = audit(store_config(self.root)).findings
        self.runner.close()
        shutil.rmtree(self.folder)
        assert found == []

    def made(self, count: int) -> list[bytes]:
        number = next(self.numbers)
        return [b"%d.%d" % (number, each) for each in range(count)]

    @rule(topic=topics, count=counts)
    def put_inner_batch(self, topic: str, count: int) -> None:
        bodies = self.made(count)
        result = self.store.appender.put_inner_batch(inner_batch(*bodies, topic=topic), count)
        assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, len(self.bodies[topic]))
        self.bases[topic].append(len(self.bodies[topic]))
        self.bodies[topic] += bodies

    @rule(topic=topics)
    def put(self, topic: str) -> None:
        bodies = self.made(1)
        assert self.store.appender.put_message(message(bodies[0], topic)).queue_offset == len(self.bodies[topic])
        self.bases[topic].append(len(self.bodies[topic]))
        self.bodies[topic] += bodies

    @rule(topic=topics, count=st.integers(1, 6))
    def put_batch(self, topic: str, count: int) -> None:
        bodies = self.made(count)
        result = self.store.appender.put_messages(message(b"", topic), batch(*bodies))
        assert result.queue_offset == len(self.bodies[topic])
        self.bases[topic] += range(len(self.bodies[topic]), len(self.bodies[topic]) + count)
        self.bodies[topic] += bodies

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        self.store.appender.dispatch()
        self.runner.run(self.store.deletion.delete_topics({topic}))
        self.bodies.pop(topic, None)
        self.bases.pop(topic, None)

    @rule()
    def sync(self) -> None:
        self.store.flusher.flush()
        self.store.queue_flusher.flush()

    @rule(lost=st.booleans(), clean=st.booleans())
    def stop_and_start(self, lost: bool, clean: bool) -> None:
        self.runner.run(self.store.stop())
        if lost:
            shutil.rmtree(self.root / "batchconsumequeue", ignore_errors=True)
        if not clean:
            (self.root / "abort").write_text("1")
        self.store = self.opened()

    @rule(lost=st.booleans())
    def kill_and_start(self, lost: bool) -> None:
        old, root = self.store, next(self.roots)
        crash_copy(self.root, root)
        if lost:
            shutil.rmtree(root / "batchconsumequeue", ignore_errors=True)
        self.root = root
        self.store = self.opened()
        self.runner.run(old.stop())

    @rule(topic=topics, at=st.integers(0, 1 << 16), max_msgs=st.integers(1, 400))
    def pull(self, topic: str, at: int, max_msgs: int) -> None:
        """From any offset: whole records from the one on that holds it."""
        self.store.appender.dispatch()
        bodies, bases = self.bodies[topic], self.bases[topic]
        if not bodies:
            return
        offset = at % len(bodies)
        result = fetch(self.store, topic, 0, offset, max_msgs)
        found = unwrap_inner_batches(decode_messages(pulled(result)))
        base = bases[bisect_right(bases, offset) - 1]
        assert [each.body for each in found] == bodies[base : result.next_begin_offset]
        assert [each.queue_offset for each in found] == list(range(base, result.next_begin_offset))
        assert result.next_begin_offset in {*bases, len(bodies)}
        assert result.next_begin_offset > offset

    @invariant()
    def queues_end_where_the_lists_do(self) -> None:
        self.store.appender.dispatch()
        for topic, bodies in self.bodies.items():
            assert self.store.queues.max_offset_in_queue(topic, 0) == len(bodies)
            assert self.store.queues.min_offset_in_queue(topic, 0) == 0


TestBatches = pytest.mark.timeout(300)(BatchMachine.TestCase)
TestBatches.settings = settings(
    max_examples=15, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
