import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.codec.message.alike_messages import alike_messages
from rocketbroker.codec.message.message_batch import BatchParts, encode_batch
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.tags_code import tags_code_bytes
from rocketbroker.common.errors import StoreError, StoreFullError
from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.store import message_appender
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.put_message import (
    BatchRun,
    MessageRun,
    PutMessageResult,
    PutMessageStatus,
    Refusal,
    StandingRefusals,
)
from rocketbroker.store.dispatch import commit_log_dispatcher
from rocketbroker.store.dispatch.commit_log_dispatcher import CommitLogDispatcher, NoListener
from rocketbroker.store.index.index_service import IndexService
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.store.queue.consume_queue import ConsumeQueue
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from tests.support.fakes import FakeClock
from tests.support.stores import V4_HOST, batch, make_store, message, open_log, store_config

FILE = 4096


class Parts:
    """An appender and what it writes to."""

    def __init__(self, root: Path, log: CommitLog, queue_file: int = 200) -> None:
        self.refusals = StandingRefusals()
        self.clock = FakeClock()
        self.log = log
        self.queues = ConsumeQueueStore(root / "consumequeue", queue_file)
        self.config = store_config(root, max_message_size=3000)
        self.appender = MessageAppender(
            log, self.queues, CommitLogDispatcher(None, NoListener()), self.config, self.clock, {}, self.refusals
        )

    def readable(self, topic: str = "Topic", queue_id: int = 0) -> int:
        queue = self.queues.find(topic, queue_id)
        return queue.max_offset if queue else 0

    def bodies(self, topic: str = "Topic", queue_id: int = 0) -> list[bytes]:
        queue = self.queues.find(topic, queue_id)
        assert queue
        entries = [queue.entry(at) for at in range(queue.max_offset)]
        return [decode_record(self.log.record(entry[0]) or b"").body for entry in entries if entry]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with open_log(tmp_path / "commitlog", FILE) as log:
        made = Parts(tmp_path, log)
        yield made
        made.queues.close()


class Watcher:
    """A listener that looks at the appender while messages are being entered."""

    waiting = True

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.seen: list[tuple[int, int, bool]] = []
        self.then: Callable[[], object] = lambda: None

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        appender = self.parts.appender
        self.seen.append((appender.last_dispatched_timestamp, appender.dispatched_offset, appender.has_pending))
        self.then()


@pytest.fixture
def watcher(parts: Parts) -> Watcher:
    found = Watcher(parts)
    parts.appender._dispatcher = CommitLogDispatcher(None, found)
    return found


@pytest.fixture
def long_log(tmp_path: Path) -> Iterator[Parts]:
    """As ``parts``, with one file of the log for all messages."""
    with open_log(tmp_path / "commitlog", 1 << 20) as log:
        made = Parts(tmp_path, log)
        yield made
        made.queues.close()


def refuse(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def refuse_entry(*_: object) -> None:
    raise StoreFullError("no room")


def too_many_open(*_: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def put_and_dispatch(appender: MessageAppender, body: bytes) -> None:
    assert appender.put_message(message(body)).status is PutMessageStatus.PUT_OK
    appender.dispatch()


def test_a_message_gets_its_place_and_is_readable_after_dispatch(parts: Parts):
    first = parts.appender.put_message(message(b"one"))
    parts.clock.advance(1)
    second = parts.appender.put_message(message(b"two", properties={"TAGS": "a"}))
    other = parts.appender.put_message(message(b"three", queue_id=1))

    assert [result.status for result in (first, second, other)] == [PutMessageStatus.PUT_OK] * 3
    assert [result.queue_offset for result in (first, second, other)] == [0, 1, 0]
    assert second.physical_offset == first.size
    assert second.store_timestamp == first.store_timestamp + 1000 == parts.appender.last_store_timestamp
    assert parts.readable() == 0
    parts.appender.dispatch()
    assert (parts.readable(), parts.readable(queue_id=1)) == (2, 1)
    assert parts.appender.put_count == 3
    parts.appender.dispatch()
    assert parts.readable() == 2


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    [
        (
            {"body": bytes(3001)},
            PutMessageStatus.MESSAGE_ILLEGAL,
            "maxMessageSize: a body of 3,001 bytes exceeds the limit of 3,000",
        ),
        ({"properties": b"k" * 31744}, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, "31,744 bytes; the limit is 31,743"),
        ({"properties": b"k" * 5000}, PutMessageStatus.MESSAGE_ILLEGAL, "mappedFileSizeCommitLog"),
        ({"properties": {"k": "v" + 511 * "\0" + "w"}}, PutMessageStatus.MESSAGE_ILLEGAL, "a NUL character"),
        ({"properties": b"k\x01v\0"}, PutMessageStatus.MESSAGE_ILLEGAL, "a NUL character"),
        ({"topic": "../up"}, PutMessageStatus.MESSAGE_ILLEGAL, "cannot be a folder name"),
    ],
)
def test_records_that_do_not_fit_are_rejected_and_not_written(parts: Parts, fields, status, reason: str):
    result = parts.appender.put_message(message(**fields))

    assert result.status is status
    assert reason in result.reason
    assert parts.log.max_offset == 0
    assert parts.appender.put_message(message()).queue_offset == 0


def test_the_limits_of_sends_do_not_hold_for_copies(long_log: Parts):
    put = long_log.appender.put_copy
    assert put(message(bytes(3001))).status is PutMessageStatus.PUT_OK
    assert put(message(properties=b"k" * 32767)).status is PutMessageStatus.PUT_OK
    longer, torn = put(message(properties=b"k" * 32768)), put(message(properties=b"k\x01v\0"))
    assert (longer.status, torn.status) == (PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, PutMessageStatus.MESSAGE_ILLEGAL)
    assert "32,768 bytes; the limit is 32,767" in longer.reason


def test_each_message_of_a_batch_leaves_room_for_copies(parts: Parts):
    for raws in ([b"k" * 31744] * 2, [b"k", b"k" * 31744]):
        result = parts.appender.put_messages(message(), BatchParts([0, 0], [b"a", b"b"], raws))
        assert result.status is PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
        assert "31,744 bytes; the limit is 31,743" in result.reason
    assert parts.log.max_offset == 0


@pytest.mark.parametrize("bits", [4, 12])
def test_half_and_rollback_messages_are_in_the_log_alone(parts: Parts, bits: int):
    result = parts.appender.put_message(message(sys_flag=bits))
    parts.appender.dispatch()

    assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, 0)
    assert parts.readable() == 0
    assert parts.appender.put_message(message(sys_flag=8)).queue_offset == 0


def test_a_batch_is_stored_back_to_back_in_one_file(parts: Parts):
    parts.appender.put_message(message(bytes(2500)))
    messages = BatchParts(range(4), [b"b" * 300] * 4, [b"TAGS\x01t\x02"] * 4)

    result = parts.appender.put_messages(message(queue_id=0), messages)

    assert result.status is PutMessageStatus.PUT_OK
    assert result.physical_offset == FILE == result.physical_offsets[0]
    assert result.queue_offset == 1
    assert parts.readable() == 5
    records = [decode_record(parts.log.record(offset) or b"", check_crc=True) for offset in result.physical_offsets]
    assert [(record.queue_offset, record.flag, record.body) for record in records] == [
        (1 + number, number, b"b" * 300) for number in range(4)
    ]
    assert sum(record.store_size for record in records) == result.size
    assert parts.appender.put_count == 5


def test_a_batch_is_stored_whole_or_not_at_all(parts: Parts):
    too_long = parts.appender.put_messages(message(), batch(*[bytes(1500)] * 3))
    looks_torn = parts.appender.put_messages(message(), BatchParts([0] * 2, [b""] * 2, [b"k\x01v\x02", b"k\x01v\0"]))
    too_long_for_a_file = parts.appender.put_messages(
        message(), BatchParts([0] * 10, [bytes(100)] * 10, [b"p" * 500] * 10)
    )

    assert too_long.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert "4,500 bytes" in too_long.reason
    assert looks_torn.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert "NUL" in looks_torn.reason
    assert too_long_for_a_file.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert parts.log.max_offset == 0
    assert parts.appender.put_message(message()).queue_offset == 0


def test_a_full_disk_refuses_sends_and_the_next_one_after_it_fits(parts: Parts, monkeypatch):
    parts.appender.put_message(message(bytes(2500)))
    parts.appender.put_message(message(bytes(100), queue_id=1))
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", refuse)
        # The file that was prepared ahead is still there; the one after it is not.
        results = [parts.appender.put_message(message(bytes(2500))) for _ in range(3)]

    assert results[-1].status is PutMessageStatus.DISK_FULL
    assert "no room for" in results[-1].reason
    taken = sum(result.status is PutMessageStatus.PUT_OK for result in results)
    assert parts.appender.put_message(message()).queue_offset == 1 + taken


def test_what_a_queue_could_not_take_is_dispatched_later_in_order(parts: Parts, monkeypatch):
    for number in range(12):
        parts.appender.put_message(message(b"%d" % number))
    parts.appender.put_message(message(b"other", queue_id=1))
    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueue, "put", refuse_entry)
        with pytest.raises(StoreError, match="no room"):
            parts.appender.dispatch()
        refused = parts.appender.put_message(message(b"12"))
    assert refused.status is PutMessageStatus.NOT_DISPATCHED
    assert refused.reason.startswith(
        "13 messages, from 0 of the CommitLog on, are stored but cannot be entered into their queues in "
        f"{parts.config.consume_queue_dir} (storePathConsumeQueue); each send retries: no room"
    )

    assert parts.appender.put_message(message(b"12")).status is PutMessageStatus.PUT_OK
    parts.appender.dispatch()

    assert (parts.readable(), parts.readable(queue_id=1)) == (13, 1)
    assert parts.bodies() == [b"%d" % number for number in range(13)]


def test_while_there_is_a_reason_nothing_is_taken(parts: Parts):
    parts.refusals.set(Refusal.READ_ONLY, "the disk is broken")

    for result in (parts.appender.put_message(message()), parts.appender.put_messages(message(), batch(b""))):
        assert (result.status, result.reason) == (PutMessageStatus.READ_ONLY, "the disk is broken")

    assert parts.log.max_offset == 0


def test_pending_messages_are_not_the_reason_while_a_more_severe_one_is_set(parts: Parts, monkeypatch):
    for number in range(12):
        parts.appender.put_message(message(b"%d" % number))
    parts.refusals.set(Refusal.READ_ONLY, "the disk is broken")
    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueue, "put", refuse_entry)
        with pytest.raises(StoreError, match="no room"):
            parts.appender.dispatch()
        assert parts.appender.put_message(message(b"12")).status is PutMessageStatus.READ_ONLY
        parts.refusals.clear(Refusal.READ_ONLY)
        assert parts.appender.put_message(message(b"12")).status is PutMessageStatus.NOT_DISPATCHED
        parts.refusals.set(Refusal.DISK_FULL, "91 %")

    parts.appender.dispatch()
    assert parts.appender.put_message(message(b"12")).status is PutMessageStatus.DISK_FULL
    parts.refusals.clear(Refusal.DISK_FULL)
    assert parts.appender.put_message(message(b"12")).status is PutMessageStatus.PUT_OK
    assert parts.readable() == 12


@pytest.mark.parametrize(("code", "status"), [(errno.EIO, "CREATE_MAPPED_FILE_FAILED"), (errno.ENOSPC, "DISK_FULL")])
def test_a_file_that_cannot_be_created_is_reported_with_the_cause(parts: Parts, monkeypatch, code: int, status: str):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", fail)

    result = parts.appender.put_message(message())

    assert result.status.name == status
    assert os.strerror(code) in result.reason


def test_how_far_the_log_is_readable(parts: Parts):
    assert parts.appender.dispatched_offset == 0
    parts.appender.put_message(message())
    parts.appender.dispatch()
    end = parts.log.max_offset
    parts.appender.put_message(message())

    assert parts.appender.dispatched_offset == end
    parts.appender.dispatch()
    assert parts.appender.dispatched_offset == parts.log.max_offset == 2 * end


def test_a_batch_that_a_queue_could_not_take_is_acknowledged_and_dispatched_later(parts: Parts, monkeypatch):
    for number in range(8):
        parts.appender.put_message(message(b"%d" % number))
    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueue, "put", refuse_entry)
        patched.setattr(ConsumeQueue, "put_entries", refuse_entry)
        held = parts.appender.put_messages(message(), batch(b"8", b"9", b"10"))
        assert (held.status, held.queue_offset) == (PutMessageStatus.PUT_OK, 8)
        with pytest.raises(StoreError, match="no room"):
            parts.appender.dispatch()
        assert parts.appender.put_messages(message(), batch(b"11")).status is PutMessageStatus.NOT_DISPATCHED
    assert parts.appender.dispatched_offset < parts.log.max_offset

    assert parts.appender.put_messages(message(), batch(b"11", b"12")).queue_offset == 11

    assert parts.readable() == 13
    assert parts.appender.dispatched_offset == parts.log.max_offset
    assert parts.bodies() == [b"%d" % number for number in range(13)]


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        (errno.ENOSPC, "DISK_FULL", "No space left on device"),
        (errno.EMFILE, "CREATE_MAPPED_FILE_FAILED", r"Too many open files: .*[\d,]+ \(ulimit -n\)"),
        (errno.ENOMEM, "CREATE_MAPPED_FILE_FAILED", r"[\d,]+ mappings \(vm\.max_map_count\)"),
    ],
)
@pytest.mark.parametrize("many", [0, 1, 2, 25])
def test_a_queue_without_room_refuses_its_own_messages_before_the_log_has_them(
    long_log: Parts, monkeypatch, code: int, status: str, reason: str, many: int
):
    """``many`` messages in a batch, 0 for a single message; a file of a queue has ten."""
    parts = long_log

    def fail(*_):
        raise OSError(code, os.strerror(code))

    def put(queue_id: int) -> PutMessageResult:
        if not many:
            return parts.appender.put_message(message(b"late", queue_id=queue_id))
        return parts.appender.put_messages(message(queue_id=queue_id), batch(*[b"late"] * many))

    for number in range(9 if many > 1 else 10):
        parts.appender.put_message(message(b"%d" % number))
    parts.appender.put_message(message(b"other", queue_id=1))
    parts.appender.dispatch()
    end = parts.log.max_offset
    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "map", fail if code == errno.ENOMEM else LocalFileSystem.map)
        patched.setattr(LocalFileSystem, "open", fail if code == errno.EMFILE else LocalFileSystem.open)
        patched.setattr(os, "posix_fallocate", fail if code == errno.ENOSPC else os.posix_fallocate)
        for queue_id in (0, 2):
            refused = put(queue_id)
            assert refused.status.name == status
            assert re.search(reason, refused.reason)
        assert parts.log.max_offset == end
        assert parts.appender.put_message(message(b"others go on", queue_id=1)).status is PutMessageStatus.PUT_OK
        parts.appender.dispatch()
        assert parts.readable(queue_id=1) == 2

    for queue_id in (0, 2):
        assert put(queue_id).status is PutMessageStatus.PUT_OK
    parts.appender.dispatch()
    assert parts.bodies()[-1] == parts.bodies(queue_id=2)[0] == b"late"
    assert parts.readable() == len(parts.bodies()) == (9 if many > 1 else 10) + max(many, 1)


def test_messages_that_wait_have_room_in_the_files_that_follow(parts: Parts, monkeypatch):
    for number in range(35):
        assert parts.appender.put_message(message(b"%d" % number)).status is PutMessageStatus.PUT_OK
    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "open", too_many_open)
        patched.setattr(LocalFileSystem, "reopen", too_many_open)
        parts.appender.dispatch()

    assert parts.bodies() == [b"%d" % number for number in range(35)]


def test_room_is_made_once_for_many_messages(tmp_path: Path, monkeypatch):
    made: list[int] = []
    make_room = ConsumeQueue.make_room

    def counted(queue: ConsumeQueue, end: int) -> None:
        made.append(end)
        make_room(queue, end)

    monkeypatch.setattr(ConsumeQueue, "make_room", counted)
    with open_log(tmp_path / "commitlog", 1 << 20) as log:
        parts = Parts(tmp_path, log, queue_file=6_000_000)
        for _ in range(4000):
            parts.appender.put_message(message(b""))
        parts.appender.dispatch()
        parts.queues.close()

    assert made == [1, 3277]


@pytest.mark.parametrize("batched", [False, True])
def test_not_even_an_error_that_nobody_foresaw_loses_an_acknowledged_message(parts: Parts, monkeypatch, batched: bool):
    def fail(*_):
        raise RuntimeError("a mistake")

    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueue, "put", fail)
        patched.setattr(ConsumeQueue, "put_entries", fail)
        if batched:
            parts.appender.put_messages(message(), batch(b"0", b"1"))
        else:
            parts.appender.put_message(message(b"0"))
            parts.appender.put_message(message(b"1"))
        with pytest.raises(RuntimeError, match="a mistake"):
            parts.appender.dispatch()

    assert parts.appender.put_message(message(b"2")).status is PutMessageStatus.PUT_OK
    parts.appender.dispatch()
    assert parts.bodies() == [b"0", b"1", b"2"]


@pytest.mark.parametrize("batched", [False, True])
def test_an_index_that_cannot_be_written_does_not_keep_sends_away(tmp_path: Path, monkeypatch, caplog, batched: bool):
    def fail(*_):
        raise StoreError("cannot allocate: EIO")

    monkeypatch.setattr(commit_log_dispatcher, "BATCH_MESSAGES", 1)
    with open_log(tmp_path / "commitlog", FILE) as log:
        parts = Parts(tmp_path, log)
        index = IndexService(tmp_path / "index", 50, 2000, lambda: "20261121095923270")
        dispatcher = CommitLogDispatcher(index, NoListener())
        appender = MessageAppender(log, parts.queues, dispatcher, parts.config, parts.clock, {}, parts.refusals)
        keyed = message(b"0", properties={"UNIQ_KEY": "U0"})
        with monkeypatch.context() as patched:
            patched.setattr(commit_log_dispatcher, "RETRY_S", 0.0)
            patched.setattr(IndexService, "_make", fail)
            if batched:
                parted = BatchParts([0], [b"0"], [keyed.properties])
                assert appender.put_messages(keyed, parted).status is PutMessageStatus.PUT_OK
            else:
                assert appender.put_message(keyed).status is PutMessageStatus.PUT_OK
            appender.dispatch()
            assert appender.put_message(message(b"1")).status is PutMessageStatus.PUT_OK
            appender.dispatch()
            assert "cannot be indexed yet" in caplog.text
            # Until too much waits.
            patched.setattr(commit_log_dispatcher, "MOST_WAITING", 2)
            with pytest.raises(StoreError, match="EIO"):
                put_and_dispatch(appender, b"2")
            refused = appender.put_message(message(b"3"))
            assert refused.status is PutMessageStatus.NOT_DISPATCHED
            assert refused.reason == (
                "messages are stored and readable, but no more can be indexed; each send retries: 3 "
                f"keys wait for the index in {tmp_path}/index (storePathIndex); the limit is 2: "
                "cannot allocate: EIO"
            )

        assert appender.put_message(message(b"3")).status is PutMessageStatus.PUT_OK
        appender.dispatch()
        assert parts.bodies() == [b"0", b"1", b"2", b"3"]
        assert index.waiting == 0
        parts.queues.close()
        index.close()


def test_keys_of_batches_do_not_wait_without_bound_either(tmp_path: Path, monkeypatch):
    def fail(*_):
        raise StoreError("cannot allocate: EIO")

    monkeypatch.setattr(commit_log_dispatcher, "BATCH_MESSAGES", 1)
    monkeypatch.setattr(commit_log_dispatcher, "MOST_WAITING", 4)
    monkeypatch.setattr(commit_log_dispatcher, "RETRY_S", 0.0)
    keyed = BatchParts([0, 0], [b"one", b"two"], [b"UNIQ_KEY\x01U1\x02", b"UNIQ_KEY\x01U2\x02"])
    with open_log(tmp_path / "commitlog", FILE) as log:
        parts = Parts(tmp_path, log)
        index = IndexService(tmp_path / "index", 50, 2000, lambda: "20261121095923270")
        dispatcher = CommitLogDispatcher(index, NoListener())
        appender = MessageAppender(log, parts.queues, dispatcher, parts.config, parts.clock, {}, parts.refusals)
        with monkeypatch.context() as patched:
            patched.setattr(IndexService, "_make", fail)
            statuses = []
            for _ in range(5):
                statuses.append(appender.put_messages(message(), keyed).status)
                with contextlib.suppress(StoreError):
                    appender.dispatch()
        taken = statuses.count(PutMessageStatus.PUT_OK)
        assert taken == 3
        assert statuses[taken:] == [PutMessageStatus.NOT_DISPATCHED] * 2

        assert appender.put_messages(message(), keyed).status is PutMessageStatus.PUT_OK
        assert parts.bodies() == [b"one", b"two"] * 4
        assert index.waiting == 0
        parts.queues.close()
        index.close()


@pytest.mark.proves("The steps of a message", "5. checkpoint")
def test_messages_are_pending_until_all_of_them_are_entered(parts: Parts, watcher: Watcher):
    """The flush threads would else take those on their way for entered."""
    first = parts.appender.put_message(message(b"one"))
    parts.clock.advance(5)
    parts.appender.put_message(message(b"two", queue_id=1))

    parts.appender.dispatch()

    assert watcher.seen == [(first.store_timestamp - 1, first.physical_offset, True)] * 2
    assert parts.appender.last_dispatched_timestamp == parts.clock.time_ms()
    assert not parts.appender.has_pending


def test_the_clock_may_be_set_back_before_a_pending_message(parts: Parts):
    parts.appender.put_message(message(b"one"))
    parts.clock.advance(-5)
    parts.appender.put_message(message(b"two"))

    assert parts.appender.last_dispatched_timestamp == parts.clock.time_ms() - 1


def test_a_batch_counts_as_dispatched_when_it_is_entered(parts: Parts, watcher: Watcher):
    parts.clock.advance(5)

    parts.appender.put_messages(message(), batch(b"a", b"b"))

    assert [seen[0] for seen in watcher.seen] == [0, 0]
    assert parts.appender.last_dispatched_timestamp == parts.clock.time_ms()


def test_messages_stored_by_a_listener_are_entered_by_the_next_dispatch(parts: Parts, watcher: Watcher):
    def store_more() -> None:
        watcher.then = lambda: None
        parts.appender.put_message(message(b"two"))
        parts.appender.put_messages(message(), batch(b"three", b"four"))
        parts.appender.dispatch()

    watcher.then = store_more
    parts.appender.put_message(message(b"one"))

    parts.appender.dispatch()
    after_the_first = parts.readable()
    parts.appender.dispatch()

    assert (after_the_first, parts.readable()) == (1, 4)
    assert parts.bodies() == [b"one", b"two", b"three", b"four"]


def test_messages_stored_by_a_listener_amid_a_batch_follow_it(parts: Parts, watcher: Watcher):
    def store_more() -> None:
        watcher.then = lambda: None
        parts.appender.put_message(message(b"three"))
        parts.appender.dispatch()

    watcher.then = store_more

    parts.appender.put_messages(message(), batch(b"one", b"two"))
    parts.appender.dispatch()

    assert parts.bodies() == [b"one", b"two", b"three"]


class TestRuns:
    """Messages of one topic that come together."""

    @staticmethod
    def run(*queue_ids: int, body: bytes = b"body", **fields: Any) -> MessageRun:
        count = len(queue_ids)
        tags = [b"T" if number % 2 else None for number in range(count)]
        raw = [b"TAGS\x01T\x02" if tag else b"" for tag in tags]
        found = [(tag, None, None, False) for tag in tags]
        run = MessageRun("Topic", queue_ids, [body] * count, raw, [1] * count, found, 0, 0, V4_HOST, 0)
        for name, value in fields.items():
            setattr(run, name, value)
        return run

    def put_each(self, parts: Parts, *queue_ids: int) -> None:
        for queue_id in queue_ids:
            assert parts.appender.put_message(message(queue_id=queue_id)).status is PutMessageStatus.PUT_OK

    def test_they_are_stored_like_messages_put_one_by_one(self, parts: Parts):
        self.put_each(parts, 0, 1)
        result = parts.appender.put_run(self.run(0, 1, 1, 0))
        assert result is not None
        self.put_each(parts, 1)
        parts.appender.dispatch()

        assert result.queue_offsets == [1, 1, 2, 2]
        assert result.physical_offsets == sorted(result.physical_offsets)
        assert result.physical_offsets[0] + result.size == parts.log.max_offset - 100
        assert (parts.readable(queue_id=0), parts.readable(queue_id=1)) == (3, 4)
        assert parts.bodies(queue_id=1) == [b"body"] * 4
        assert parts.appender.put_count == 7
        assert parts.appender.last_store_timestamp == result.store_timestamp

    @pytest.mark.parametrize(
        "fields",
        [
            {"body": b"x" * 3001},
            {"properties": [b"p" * 40_000] * 2},
            {"sys_flag": 4},
            {"sys_flag": 12},
            {"topic": "SCHEDULE_TOPIC_XXXX"},
            {"topic": "Other"},
        ],
    )
    def test_what_might_be_rejected_is_left_to_single_puts(self, parts: Parts, fields: dict[str, Any]):
        self.put_each(parts, 0, 1)
        end = parts.log.max_offset

        assert parts.appender.put_run(self.run(0, 1, **fields)) is None

        assert parts.log.max_offset == end
        assert parts.appender.put_count == 2
        queue = parts.queues.find("Topic", 0)
        assert queue is not None
        assert queue.next_offset == 1

    def test_none_is_stored_while_messages_are_rejected(self, parts: Parts):
        self.put_each(parts, 0, 1)
        parts.refusals.set(Refusal.READ_ONLY, "why")

        assert parts.appender.put_run(self.run(0, 1)) is None

    def test_none_is_stored_without_room_in_a_queue(self, parts: Parts, monkeypatch: pytest.MonkeyPatch):
        self.put_each(parts, 0, 1)
        queue = parts.queues.find("Topic", 1)
        assert queue is not None
        queue.room_end = 2
        end = parts.log.max_offset

        with monkeypatch.context() as refusing:
            refusing.setattr(ConsumeQueue, "make_room", full)
            assert parts.appender.put_run(self.run(0, 1, 1, 0)) is None
        assert (queue.next_offset, parts.log.max_offset) == (1, end)

        assert parts.appender.put_run(self.run(0, 1, 1, 0)) is not None
        assert queue.room_end >= queue.next_offset == 3

    def test_what_fails_before_the_write_leaves_no_trace(self, parts: Parts, monkeypatch: pytest.MonkeyPatch):
        self.put_each(parts, 0, 1)
        end = parts.log.max_offset

        with monkeypatch.context() as failing:
            failing.setattr(message_appender, "tags_code_bytes", lambda _: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                parts.appender.put_run(self.run(0, 1))

        assert parts.log.max_offset == end
        assert parts.appender.put_run(self.run(0, 1)) is not None
        parts.appender.dispatch()
        assert parts.bodies() == [b"body"] * 2

    def test_the_longest_record_is_that_of_one_message(self, parts: Parts):
        self.put_each(parts, 0, 1)
        parts.log.longest_record = 100

        assert parts.appender.put_run(self.run(0, 1, 0, 1, body=b"x" * 1500)) is None
        assert parts.appender.put_messages(message(), batch(*[bytes(10)] * 300)).status is not PutMessageStatus.PUT_OK
        assert parts.log.longest_record == 100

        result = parts.appender.put_run(self.run(0, 1, 0, body=b"x" * 300))
        assert result is not None
        assert parts.log.longest_record == result.physical_offsets[2] - result.physical_offsets[1]
        assert parts.appender.put_messages(message(), batch(*[bytes(500)] * 3)).status is PutMessageStatus.PUT_OK
        assert parts.log.longest_record < 700

    def test_a_disk_without_room_leaves_them_to_single_puts(self, parts: Parts, monkeypatch: pytest.MonkeyPatch):
        self.put_each(parts, 0, 1)
        monkeypatch.setattr(CommitLog, "_room", full)
        end = parts.log.max_offset

        assert parts.appender.put_run(self.run(0, 1)) is None
        assert parts.log.max_offset == end

    def test_a_run_that_does_not_fit_goes_to_the_next_file(self, parts: Parts):
        self.put_each(parts, 0, 1)
        for _ in range(40):
            assert parts.appender.put_run(self.run(0, 1)) is not None
            parts.appender.dispatch()

        assert parts.log.max_offset > 2 * FILE
        assert parts.bodies() == parts.bodies(queue_id=1) == [b"body"] * 41

    def test_a_run_longer_than_a_file_is_left_to_single_puts(self, parts: Parts):
        self.put_each(parts, 0, 1)

        assert parts.appender.put_run(self.run(0, 1, 0, 1, body=b"x" * 1500)) is None


class TestBatchRuns:
    """Batches of one topic that come together."""

    @staticmethod
    def run(*queue_ids: int, body: bytes = b"body", count: int = 2) -> BatchRun:
        data = encode_batch((0, body, b"UNIQ_KEY\x01%05d\x02TAGS\x01T\x02" % number) for number in range(count))
        messages = alike_messages([data] * len(queue_ids))
        assert messages is not None
        return BatchRun("Topic", queue_ids, [count] * len(queue_ids), [1] * len(queue_ids), messages, 0, V4_HOST, 0)

    def put_each(self, parts: Parts, *queue_ids: int) -> None:
        for queue_id in queue_ids:
            assert parts.appender.put_message(message(queue_id=queue_id)).status is PutMessageStatus.PUT_OK

    def test_they_are_stored_like_batches_put_one_by_one(self, parts: Parts):
        self.put_each(parts, 0, 1)
        result = parts.appender.put_batches(self.run(0, 1, 1, 0))
        assert result is not None

        assert (parts.readable(queue_id=0), parts.readable(queue_id=1)) == (5, 5)
        assert result.queue_offsets == [1, 1, 3, 3]
        assert result.physical_offsets[0] + result.size == parts.log.max_offset
        assert parts.bodies(queue_id=1) == [b"body"] * 5
        queue = parts.queues.find("Topic", 0)
        assert queue is not None
        assert [code for _, _, code in queue.entries(1, 9)] == [tags_code_bytes(b"T")] * 4
        assert (parts.appender.put_count, queue.next_offset) == (10, 5)
        assert parts.appender.last_store_timestamp == result.store_timestamp

    def test_none_is_stored_in_a_queue_that_does_not_exist(self, parts: Parts):
        self.put_each(parts, 0)
        end = parts.log.max_offset

        assert parts.appender.put_batches(self.run(0, 1)) is None
        assert parts.log.max_offset == end

    def test_none_is_stored_while_messages_are_rejected(self, parts: Parts):
        self.put_each(parts, 0)
        parts.refusals.set(Refusal.READ_ONLY, "why")

        assert parts.appender.put_batches(self.run(0)) is None

    def test_none_is_stored_without_room_in_a_queue_or_in_the_log(self, parts: Parts, monkeypatch: pytest.MonkeyPatch):
        self.put_each(parts, 0, 1)
        queue = parts.queues.find("Topic", 1)
        assert queue is not None
        queue.room_end = 2
        end = parts.log.max_offset

        with monkeypatch.context() as refusing:
            refusing.setattr(ConsumeQueue, "make_room", full)
            assert parts.appender.put_batches(self.run(0, 1)) is None
        with monkeypatch.context() as refusing:
            refusing.setattr(CommitLog, "_room", full)
            assert parts.appender.put_batches(self.run(0, 1)) is None
        assert (queue.next_offset, parts.log.max_offset) == (1, end)

        assert parts.appender.put_batches(self.run(0, 1)) is not None
        assert queue.room_end >= queue.next_offset == 3

    def test_a_batch_that_a_queue_could_not_take_is_dispatched_later(self, parts: Parts, monkeypatch):
        self.put_each(parts, 0, 1)
        with monkeypatch.context() as patched:
            patched.setattr(ConsumeQueue, "put", refuse_entry)
            patched.setattr(ConsumeQueue, "put_entries", refuse_entry)
            assert parts.appender.put_batches(self.run(0, 1)) is not None
            with pytest.raises(StoreError, match="no room"):
                parts.appender.dispatch()
        assert parts.readable() == 0

        parts.appender.dispatch()

        assert (parts.readable(queue_id=0), parts.readable(queue_id=1)) == (3, 3)

    def test_the_longest_record_is_that_of_one_message(self, parts: Parts):
        self.put_each(parts, 0)
        parts.log.longest_record = 100

        assert parts.appender.put_batches(self.run(0, 0, body=b"x" * 1500, count=3)) is None
        assert parts.log.longest_record == 100
        result = parts.appender.put_batches(self.run(0, 0, body=b"x" * 300))

        assert result is not None
        assert parts.log.longest_record == result.physical_offsets[1] - result.physical_offsets[0]


def full(*_: object) -> None:
    raise StoreFullError("no room")


@pytest.mark.parametrize(("level", "due"), [(b"3", 10_000), (b"9", 1000), (b"x", 1000), (b"", 1000)])
async def test_delayed_messages_are_queued_by_when_they_are_due(tmp_path: Path, level: bytes, due: int):
    clock = FakeClock()
    store = make_store(tmp_path / "store", clock, message_delay_level="1s 5s 10s")
    await store.start()

    for topic in ("SCHEDULE_TOPIC_XXXX", "Topic"):
        one = message(topic=topic, queue_id=2)
        one.properties = b"DELAY\x01%s\x02TAGS\x01a\x02" % level
        store.appender.put_message(one)
    store.appender.dispatch()

    delayed, plain = (store.queues.queues_of(topic)[2].entry(0) for topic in ("SCHEDULE_TOPIC_XXXX", "Topic"))
    assert delayed is not None
    assert plain is not None
    assert delayed.tags_code == clock.time_ms() + due
    assert plain.tags_code == tags_code_bytes(b"a")
    await store.stop()
