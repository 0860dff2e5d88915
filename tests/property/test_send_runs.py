"""Sends that come by one read event are stored and answered as if each had come alone."""

import asyncio
import errno
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.broker.message_meters import NORMAL, MessageMeters
from rocketbroker.broker.timer.timer_rewrite import HandleScheduleMessage
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_batch import encode_batch
from rocketbroker.codec.message.message_id import UniqueIds
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.frame import decode_frames, encode_frame
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.processor.send_message import SendMessageProcessor
from rocketbroker.processor.support import send_runs
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.processor.support.put_answers import MessagePuts
from rocketbroker.processor.support.request_family import routes_of
from rocketbroker.processor.support.send_runs import BatchRuns, SendRuns
from rocketbroker.processor.support.topic_target import RetryAndDlq, TopicTargets
from rocketbroker.store.flush.flush_service import CommitLogFlusher
from rocketbroker.store.message_store import MessageStore
from rocketbroker.transport.endpoint import EndpointHooks
from tests.support.fakes import FakeClock
from tests.support.stores import make_store
from tests.support.transports import connect, feed
from tests.support.waiting import until

UNIQUE = "UNIQ_KEY\x017F00000112671B28CDFA0000%08X\x02"
# What the properties of a send may hold beside its unique id; the first ones need nothing special.
PLAIN = ["WAIT\x01true\x02", "WAIT\x01true\x02TAGS\x01T\x02", "TAGS\x01other", "a\x01b c\x02KEYS\x01k\x02"]
SPECIAL = [
    "DELAY\x013\x02",
    "TRAN_MSG\x01true\x02",
    "UNIQ_KEY\x01second\x02",
    "KEYS\x01" + "k " * 200 + "\x02",
    "name\x01\u00e4\u20ac\U0001f600\x02",
    'quote\x01"\\/\b\x02',
    "MSG_REGION\x01elsewhere\x02",
    "POP_CK\x010 1700000000000 60000 3 0 broker-a 0 7\x02",
    "_SYS_MSG_PRIORITY_\x013\x02",
]


def send(
    number: int, queue_id: int, before: str, behind: str, body: int, unique: str = UNIQUE, **fields: object
) -> bytes:
    """Return the frame of a send."""
    header = SendMessageRequestHeaderV2(
        "PG", "T", "TBW102", 4, queue_id, 0, 1_700_000_000_000 + number, 0, before + unique % number + behind
    )
    for name, value in fields.items():
        setattr(header, name, value)
    command = request(RequestCode.SEND_MESSAGE_V2, header, bytes([number & 0x7F]) * body)
    command.opaque = number
    return encode_frame(command)


@dataclass
class Broker:
    """A send path with a store; ``runs`` receives the length of each run."""

    store: MessageStore
    stats: BrokerStatsManager
    routes: dict[int, Route]

    def stored(self) -> tuple[bytes, list[bytes]]:
        """Return the log, and the queues and index files."""
        index = self.store.index_service
        assert index is not None
        index.flush()
        log = b"".join(bytes(file.buffer[: file.wrote]) for file in self.store.commit_log.queue.files)
        queues = [bytes(queue.entry_bytes(0, 1_000_000)) for queue in self.store.queues]
        return log, queues + [file.file.path.read_bytes() for file in index.files]


@asynccontextmanager
async def send_path(runs: list[int] | None = None, capacity: int = 10_000, **settings: Any) -> AsyncIterator[Broker]:
    """Run a send path with topic T in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        root, clock = Path(folder), FakeClock()
        config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1", auto_create_topic_enable=False)
        apply_updates([config], {"sendThreadPoolQueueCapacity": str(capacity)})
        topics = TopicConfigManager(root / "topics.json", config, clock)
        topics.update(TopicConfig("T", 4, 4))
        stats = BrokerStatsManager(clock, config.broker_cluster_name, MessageMeters())
        sizes = {"mapped_file_size_commit_log": 1 << 20, "max_hash_slot_num": 500, "max_index_num": 2000}
        store = make_store(root / "store", clock, **(sizes | settings))
        groups = SubscriptionGroupManager(root / "subscriptionGroup.json", config, clock)
        processor = SendMessageProcessor(
            config,
            MessagePuts.of(store),
            TopicTargets(config, topics, stats, clock),
            RetryAndDlq(groups, topics, RebalanceLockManager(clock), stats),
            UniqueIds(bytes([127, 0, 0, 1]), 4711, 0, clock.time_ms),
            HandleScheduleMessage(store.config, clock, 18, lambda: 1000),
            BrokerFastFailure(config),
        )
        if runs is not None:
            _note_runs(processor.runs, runs)
            _note_runs(processor.batch_runs, runs)
        await store.start()
        try:
            yield Broker(store, stats, routes_of([processor]))
        finally:
            await store.stop()


async def sent(
    events: Sequence[bytes], runs: list[int] | None = None, capacity: int = 10_000, **settings: Any
) -> tuple[bytes, bytes, list[bytes], list[int]]:
    """Feed read events to the send path; return answers, log, queues with index, and counts."""
    async with send_path(runs, capacity, **settings) as broker:
        connection, transport, endpoint = connect(broker.routes)
        endpoint.hooks = EndpointHooks(broker.store.appender.dispatch)
        for event in events:
            feed(connection, event)
        await until(lambda: not connection.open_requests)
        await asyncio.sleep(0)  # the answers are written
        item = broker.stats.topic_put("T")
        requests = sum(latency.count for latency in endpoint.meter.figures.values())
        assert broker.stats.meters is not None
        traffic = broker.stats.meters.traffic("T", NORMAL)
        measured = [traffic.nums, traffic.size, traffic.sizes.count, *traffic.sizes.buckets]
        counts = [item.nums, item.times, item.size, item.misses, requests, *measured]
        return bytes(transport.written), *broker.stored(), counts


def by_opaque(answers: bytes) -> list[Command]:
    return sorted(decode_frames(answers), key=lambda answer: answer.opaque)


def batch(number: int, queue_id: int, body: bytes, *others: str, properties: str = PLAIN[1], **fields: object) -> bytes:
    """Return the frame of a batch of messages with equal properties, and of some with ``others``."""
    each = [UNIQUE % (16 * number + at) + text for at, text in enumerate([properties] * 3 + list(others))]
    data = encode_batch((0, body, raw.encode()) for raw in each)
    header = SendMessageRequestHeaderV2(
        "PG", "T", "TBW102", 4, queue_id, 0, 1_700_000_000_000 + number, 0, UNIQUE % (16 * number), batch=True
    )
    for name, value in fields.items():
        setattr(header, name.removeprefix("_"), value)
    command = request(RequestCode.SEND_BATCH_MESSAGE, header, data)
    command.opaque = number
    return encode_frame(command)


def _note_runs(handler: SendRuns | BatchRuns, runs: list[int]) -> None:
    process = handler.process

    def noting(connection, command, columns, bodies):
        answers = process(connection, command, columns, bodies)
        if answers is not None:
            runs.append(len(bodies))
        return answers

    handler.process = noting  # type: ignore[method-assign]


PROPERTIES = st.sampled_from([*PLAIN, *PLAIN, *PLAIN, *SPECIAL])
SENDS = st.tuples(
    st.integers(0, 4), st.sampled_from(["", "", "KEYS\x01k1\x02", "xUNIQ_KEY\x01y"]), PROPERTIES, st.integers(0, 40)
)


@settings(max_examples=40, deadline=None)
@given(st.lists(SENDS, min_size=1, max_size=30), st.integers(0, 30))
@example([(1, "", PLAIN[0], 9)] * 30, 30)
@example([(1, "", PLAIN[0], 9)] * 10 + [(4, "", PLAIN[0], 9)] + [(1, "", PLAIN[0], 9)] * 10, 30)
def test_runs_differ_in_nothing_from_sends_that_come_alone(sends: list[tuple[int, str, str, int]], learned: int):
    # Some sends before them teach the connection a template.
    first = [send(number + 1, number % 4, "", PLAIN[0], 5) for number in range(learned)]
    frames = [send(number, *each) for number, each in enumerate(sends, 100)]

    alone = asyncio.run(sent([*first, *frames]))
    together = asyncio.run(sent([b"".join(first), b"".join(frames)] if first else [b"".join(frames)]))

    assert together == alone


@pytest.mark.parametrize("special", SPECIAL)
def test_one_special_send_among_others_is_handled_as_if_alone(special: str):
    first = [send(number + 1, number % 4, "", PLAIN[0], 5) for number in range(20)]
    frames = [send(number, 1, "", special if number == 105 else PLAIN[0], 5) for number in range(100, 112)]

    assert asyncio.run(sent([b"".join(first), b"".join(frames)])) == asyncio.run(sent([*first, *frames]))


def test_a_long_read_event_is_handled_in_runs():
    frames = [send(number + 1, number % 4, f"KEYS\x01k{number % 3}\x02", PLAIN[1], number) for number in range(150)]
    runs: list[int] = []

    together = asyncio.run(sent([b"".join(frames[:20]), b"".join(frames[20:])], runs))

    assert sum(runs) > 120
    assert together == asyncio.run(sent(frames))


def test_sends_with_long_properties_and_few_keys_are_handled_in_runs():
    frames = [send(number + 1, number % 4, "", f"a\x01{'b' * 1000}\x02KEYS\x01k\x02", 5) for number in range(40)]
    runs: list[int] = []

    together = asyncio.run(sent([b"".join(frames[:20]), b"".join(frames[20:])], runs))

    assert sum(runs) >= 20
    assert together == asyncio.run(sent(frames))


def test_requests_before_a_broken_frame_are_stored_and_answered_in_order():
    frames = [send(number + 1, number % 4, "", PLAIN[0], 5) for number in range(40)]
    broken = b"\x00\x00\x00\x02\x00\x00"
    runs: list[int] = []

    answers, _, _, counts = asyncio.run(sent([b"".join(frames[:20]), b"".join(frames[20:]) + broken], runs))

    assert runs[-1] == 20
    assert counts[0] == 40
    expected = asyncio.run(sent(frames))[0]
    assert answers[: len(expected)] == expected
    (refusal,) = decode_frames(answers[len(expected) :])
    assert "frame length 2 is below the minimum of 4" in (refusal.remark or "")


HANDLE = "\x010 1700000000000 60000 3 0 broker-a 0 7\x02TAGS\x01T\x02"


@pytest.mark.parametrize("name", ["POP_CK"[:at] + "X" + "POP_CK"[at + 1 :] for at in range(7)] + ["XPOP_CK"])
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("is_before", [False, True])
def test_a_handle_goes_and_a_property_that_differs_in_one_byte_stays(name: str, is_known: bool, is_before: bool):
    def named(number: int, name: str) -> bytes:
        return send(number, 1, (name + HANDLE) * is_before, (name + HANDLE) * (not is_before), 5)

    first = [named(number, name) if is_known else send(number, 1, "", PLAIN[0], 5) for number in range(1, 21)]
    alike = [named(number, name) for number in range(100, 110)]
    with_handle = [named(number, "POP_CK" if number == 115 else name) for number in range(110, 120)]
    runs: list[int] = []

    together = asyncio.run(sent([b"".join(each) for each in (first, alike, with_handle)], runs))

    assert together == asyncio.run(sent([*first, *alike, *with_handle]))
    assert runs[-1] == len(alike), "what came with the handle is no run"
    assert b"\x02POP_CK\x01" not in together[1].replace(b"\0", b"\x02")
    assert together[1].count(f"{name}{HANDLE}".encode()) == 20 * is_known + 19


def test_a_request_that_fails_harms_none_of_its_run():
    good = [send(number + 1, number % 4, "", PLAIN[0], 5) for number in range(40)]
    bad = send(50, 9, "", PLAIN[0], 5)
    events = [b"".join(good[:20]), b"".join([*good[20:30], bad, *good[30:]])]

    answers, log, _, counts = asyncio.run(sent(events))

    assert (answers, log) == asyncio.run(sent([*good[:30], bad, *good[30:]]))[:2]
    assert counts[0] == 40
    assert answers.count(b'{"code":0,') == 40


def test_a_run_that_fails_for_an_unknown_reason_is_handled_one_by_one(caplog, monkeypatch):
    frames = [send(number + 1, number % 4, "", PLAIN[0], 5) for number in range(40)]
    expected = asyncio.run(sent(frames))
    monkeypatch.setattr(SendRuns, "target", lambda *_: 1 // 0)

    assert asyncio.run(sent([b"".join(frames)])) == expected
    assert "each is handled alone" in caplog.text


def test_a_run_whose_answers_fail_is_stored_once(monkeypatch):
    frames = [send(number + 1, number % 4, "", PLAIN[0], 5) for number in range(40)]
    _, log, queues, _ = asyncio.run(sent(frames))
    monkeypatch.setattr(send_runs, "send_responses", lambda *_: 1 // 0)

    answers, *stored, _ = asyncio.run(sent([b"".join(frames[:20]), b"".join(frames[20:])]))

    assert stored == [log, queues]
    assert answers.count(b"ZeroDivisionError") == 20 + 16
    assert [b'"opaque":%d,' % number in answers for number in range(1, 41)] == [True] * 40


def test_one_way_sends_and_those_of_other_topics_are_handled_alone():
    frames = [send(number + 1, number % 4, "", PLAIN[0], 5) for number in range(30)]
    frames[10:10] = [send(60 + number, 0, "", PLAIN[0], 5, topic=os.urandom(4).hex()) for number in range(8)]

    assert asyncio.run(sent([b"".join(frames)])) == asyncio.run(sent(frames))


def _note_failure(flusher: CommitLogFlusher, _error: OSError) -> None:
    """Note a failed sync in words that name no folder."""
    flusher.error = "the disk refused"


class TestSyncFlush:
    """Runs whose messages must be on disk before their answers."""

    FIRST = b"".join(send(number + 1, number % 4, "", PLAIN[0], 5) for number in range(20))

    def same(self, sends: list[bytes], runs: list[int], *, first: bytes = FIRST, **settings: Any) -> list[Command]:
        """Send them together and alone; return the answers, which are the same, as is all that was stored."""
        settings["flush_disk_type"] = "SYNC_FLUSH"
        answers, *together = asyncio.run(sent([first, b"".join(sends)], runs, **settings))
        expected, *alone = asyncio.run(sent([first, *sends], **settings))

        found = by_opaque(answers)
        assert found == by_opaque(expected)
        assert together == alone
        return found[20:]

    @pytest.mark.parametrize("special", [PLAIN[1], *SPECIAL[:2]])
    def test_a_run_is_answered_when_it_is_on_disk(self, special: str, monkeypatch: pytest.MonkeyPatch):
        synced: list[int] = []
        acknowledge = CommitLogFlusher._end_first

        def noting(flusher, waits, outcome):
            synced.append(flusher.flushed_offset - waits[0].offset)
            acknowledge(flusher, waits, outcome)

        monkeypatch.setattr(CommitLogFlusher, "_end_first", noting)
        runs: list[int] = []

        answers = self.same(
            [send(number, 1, "", special if number == 190 else PLAIN[0], 5) for number in range(100, 200)], runs
        )

        assert runs[1] == 64
        assert sum(answer.code == 0 for answer in answers) >= 99
        assert min(synced) >= 0

    def test_a_failed_sync_is_told_to_each_send_with_its_place(self, monkeypatch: pytest.MonkeyPatch):
        note_on_disk = CommitLogFlusher._note_on_disk

        def refuse(flusher: CommitLogFlusher, stored: int) -> None:
            if flusher._sends:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            note_on_disk(flusher, stored)

        monkeypatch.setattr(CommitLogFlusher, "_note_on_disk", refuse)
        monkeypatch.setattr(CommitLogFlusher, "_failed", _note_failure)
        runs: list[int] = []

        answers = self.same([send(n, 1, "", PLAIN[0], 5) for n in range(100, 130)], runs)

        assert runs[-1] == 30
        assert {(answer.code, answer.remark) for answer in answers} == {(10, "the disk refused")}
        assert [answer.header["queueOffset"] for answer in answers] == [str(5 + n) for n in range(30)]

    def test_a_late_sync_is_told_to_each_send_with_its_place(self, monkeypatch: pytest.MonkeyPatch):
        flush = CommitLogFlusher.flush
        monkeypatch.setattr(CommitLogFlusher, "flush", lambda flusher: flush(flusher) if flusher._stopping else None)
        runs: list[int] = []

        answers = self.same([send(n, 1, "", PLAIN[0], 5) for n in range(100, 130)], runs, sync_flush_timeout=20)

        assert runs[-1] == 30
        assert {(answer.code, answer.remark) for answer in answers} == {
            (10, "the message was not on disk within 20 ms (syncFlushTimeout)")
        }
        assert [answer.header["queueOffset"] for answer in answers] == [str(5 + n) for n in range(30)]

    @pytest.mark.parametrize("capacity", [45, 50])
    def test_sends_beyond_those_that_may_wait_are_rejected(self, capacity: int):
        runs: list[int] = []

        answers = self.same([send(n, 1, "", PLAIN[0], 5) for n in range(100, 130)], runs, capacity=capacity)

        assert [answer.code for answer in answers] == [0] * (capacity - 20) + [2] * (50 - capacity)
        assert (30 in runs) is (capacity == 50)

    def test_a_run_of_batches_waits_for_the_disk_as_one(self):
        runs: list[int] = []
        first = b"".join(batch(number + 1, number % 4, b"one") for number in range(20))

        answers = self.same([batch(number, 1, b"two") for number in range(100, 130)], runs, first=first)

        assert runs[-1] == 30
        assert [answer.code for answer in answers] == [0] * 30


BATCHES = st.tuples(
    st.integers(0, 4),
    st.sampled_from([b"one", b"two", b"longer"]),
    st.sampled_from([[], [], [PLAIN[1]], [PLAIN[0]], ["KEYS\x01k\x02"]]),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(BATCHES, min_size=1, max_size=9), st.integers(1, 3))
@example([(1, b"one", [])] * 9, 3)
@example([(1, b"one", [])] * 3 + [(1, b"two", [PLAIN[1]])] * 3 + [(4, b"one", [])] * 3, 3)
def test_runs_differ_in_nothing_from_batches_that_come_alone(batches: list[tuple[int, bytes, list[str]]], event: int):
    first = [batch(number + 1, number % 4, b"one") for number in range(9)]
    frames = [batch(number, queue_id, body, *others) for number, (queue_id, body, others) in enumerate(batches, 100)]
    together = [b"".join(frames[at : at + 3 * event]) for at in range(0, len(frames), 3 * event)]

    assert asyncio.run(sent([b"".join(first), *together])) == asyncio.run(sent([*first, *frames]))


def test_batches_of_a_read_event_are_handled_in_runs():
    frames = [batch(number + 1, number % 4, b"%03d" % number) for number in range(40)]
    runs: list[int] = []

    together = asyncio.run(sent([b"".join(frames[:20]), b"".join(frames[20:])], runs))

    assert runs[-1] == 20
    assert together == asyncio.run(sent(frames))


@pytest.mark.parametrize(
    "special",
    [
        batch(15, 1, b"one", properties="DELAY\x013\x02"),
        batch(15, 9, b"one"),
        batch(15, 1, b"one", properties=SPECIAL[3]),
        batch(15, 1, b"one", _properties="DELAY\x013\x02"),
        batch(15, 1, b"one", _properties="A\x01b\x02"),
        batch(15, 1, b"one", topic="Other"),
        batch(15, 1, b"one", sys_flag=4),
    ],
    ids=["delayed message", "queue", "keys", "delayed", "no unique id", "topic", "transaction"],
)
def test_one_special_batch_among_others_is_handled_as_if_alone(special: bytes):
    first = [batch(number + 1, number % 4, b"one") for number in range(9)]
    frames = [batch(number, 1, b"two") for number in range(10, 20)]
    frames[5] = special

    assert asyncio.run(sent([b"".join(first), b"".join(frames)])) == asyncio.run(sent([*first, *frames]))


def test_a_run_of_batches_that_cannot_be_prepared_is_handled_one_by_one(caplog, monkeypatch):
    frames = [batch(number + 1, number % 4, b"one") for number in range(20)]
    expected = asyncio.run(sent(frames))
    monkeypatch.setattr(BatchRuns, "_prepare", lambda *_: 1 // 0)

    assert asyncio.run(sent([b"".join(frames)])) == expected
    assert "each is handled alone" in caplog.text


# Properties in the orders of clients: Java's hash map, Go's map (any order), C++'s sorted map, and our client's.
ORDERS = {
    "Java": ("KEYS", "UNIQ_KEY", "WAIT", "TAGS"),
    "Go": ("TAGS", "UNIQ_KEY", "KEYS"),
    "C++": ("KEYS", "TAGS", "UNIQ_KEY", "WAIT"),
    "ours": ("WAIT", "UNIQ_KEY", "TAGS"),
}
PAIRS = {"KEYS": "key", "UNIQ_KEY": "7F00000112671B28CDFA0000%08X", "WAIT": "true", "TAGS": "TagA"}
# What ends or escapes a text, digits and letters of names, and bytes that are no UTF-8.
OTHER_BYTES = b'"\\,:{}\x00\x01\x02 019AUKTe\x7f\xc3\xff'


def properties_of(order: Sequence[str], number: int) -> str:
    return "".join(f"{name}\x01{PAIRS[name]}\x02" for name in order) % number


def alike_send(order: Sequence[str], number: int) -> bytes:
    """Return the frame of a send with the properties of a client."""
    header = SendMessageRequestHeaderV2(
        "PG", "T", "TBW102", 4, number % 4, 0, 1_700_000_000_000 + number, 0, properties_of(order, number)
    )
    command = request(RequestCode.SEND_MESSAGE_V2, header, b"body %08d" % number)
    command.opaque = number
    return encode_frame(command)


def alike_batch(order: Sequence[str], number: int) -> bytes:
    """Return the frame of a batch of three messages with the properties of a client."""
    names = [name for name in order if name != "KEYS"]
    data = encode_batch(
        (0, b"body %08d" % n, properties_of(names, n).encode()) for n in range(3 * number, 3 * number + 3)
    )
    header = SendMessageRequestHeaderV2(
        "PG", "T", "TBW102", 4, number % 4, 0, 1_700_000_000_000 + number, 0, UNIQUE % number, batch=True
    )
    command = request(RequestCode.SEND_BATCH_MESSAGE, header, data)
    command.opaque = number
    return encode_frame(command)


def events_with_changes(
    make: Callable[[Sequence[str], int], bytes], half: int, order: Sequence[str] | None
) -> list[list[bytes]]:
    """Return read events of frames one of which has another byte.

    Every byte of a frame is changed, in the first, middle or last frame of an event, whose halves have ``half`` frames.

    Args:
        make: returns the frame of a client with a number.
        half: frames that are worth a run.
        order: try each place and each of ``OTHER_BYTES`` for this client, not one of them by any client.
    """
    random = Random(half)
    events: list[list[bytes]] = []
    places = 0, half, 2 * half
    choices = list(product([order] if order else ORDERS.values(), places, OTHER_BYTES))
    for at in range(len(make(order or ORDERS["Java"], 100))):
        for client, place, byte in choices if order else [random.choice(choices)]:
            number = 100 + (2 * half + 1) * len(events) % 800
            event = [make(client, number + each) for each in range(2 * half + 1)]
            frame = event[place]
            event[place] = frame[:at] + bytes([byte]) + frame[at + 1 :]
            events.append(event)
    return events


async def exchanged(
    events: Sequence[Sequence[bytes]], teaching: Sequence[bytes], runs: list[int], *, together: bool
) -> tuple[list[bytes], list[str]]:
    """Return the answers to each event, and digests of the log, of the queues and of the index.

    A connection that an event has ended, or left within a frame, is followed by another one. Each learns a template
    from the frames ``teaching``.
    """
    answers: list[bytes] = []
    sizes = {"mapped_file_size_commit_log": 1 << 28, "max_hash_slot_num": 50_000, "max_index_num": 800_000}
    async with send_path(runs, mapped_file_size_consume_queue=20 * 300_000, **sizes) as broker:
        connected = None
        for event in events:
            if connected is None:
                connected = connection, transport, endpoint = connect(broker.routes)
                endpoint.hooks = EndpointHooks(broker.store.appender.dispatch)
                for data in [b"".join(teaching)] if together else teaching:
                    feed(connection, data)
            begin = len(transport.written)
            for data in [b"".join(event)] if together else event:
                if not transport.closed:
                    feed(connection, data)
            answers.append(bytes(transport.written[begin:]))
            if transport.closed or any(frame[:8] != event[1][:8] for frame in event):
                connection.connection_lost(None)
                connected = None
        # A run never reaches over the end of a file, where single messages do: within one file both must be alike.
        assert len(broker.store.commit_log.queue.files) == 1
        log, others = broker.stored()
        assert len(log) > 100 * len(events)
        return answers, [sha256(each).hexdigest() for each in (log, *others)]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "order",
    [None, *(pytest.param(order, marks=pytest.mark.soak) for order in ORDERS.values())],
    ids=["some of all", *ORDERS],
)
@pytest.mark.parametrize(("make", "half"), [(alike_send, 7), (alike_batch, 3)], ids=["sends", "batches"])
def test_frames_with_any_other_byte_are_stored_and_answered_as_if_alone(
    make: Callable[[Sequence[str], int], bytes], half: int, order: Sequence[str] | None
):
    events = events_with_changes(make, half, order)
    teaching = [make(ORDERS["Java"], number) for number in range(9)]
    runs: list[int] = []

    together = asyncio.run(exchanged(events, teaching, runs, together=True))
    alone = asyncio.run(exchanged(events, teaching, [], together=False))

    assert len(runs) > len(events) // 2, "most events are handled in runs"
    assert [at for at, answers in enumerate(together[0]) if answers != alone[0][at]] == []
    assert together[1] == alone[1]
