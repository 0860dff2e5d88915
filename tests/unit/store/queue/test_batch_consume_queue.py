"""Queues whose records may be batches."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.codec.message.message_batch import encode_batch
from rocketbroker.codec.message.message_const import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_CQ_STORE_UNIT_SIZE, BATCH_ENTRY, inner_batch
from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.queue.batch_consume_queue import BatchConsumeQueue
from tests.support.damage import overwrite
from tests.support.fakes import FakeClock
from tests.support.stores import inner_batch as inner_batch_batch_queues
from tests.support.stores import make_store, message, open_log

FILE = 4 * BATCH_CQ_STORE_UNIT_SIZE


class Filled:
    """A log, and a queue over it."""

    def __init__(self, log: CommitLog, folder: Path) -> None:
        self.log = log
        self.folder = folder
        self.queue = self.opened()
        self.offsets: list[int] = []

    def opened(self) -> BatchConsumeQueue:
        queue = BatchConsumeQueue("B", 0, self.folder, FILE, self.log.bytes_at)
        queue.load()
        return queue

    def again(self) -> BatchConsumeQueue:
        self.queue.queue.close()
        self.queue = self.opened()
        return self.queue

    def put(self, count: int, base: int | None = None, timestamp: int = 7) -> int:
        """Store a batch of so many, or a single message for 1; gives its CommitLog offset."""
        base = self.queue.max_offset if base is None else base
        offset, size = self.log.append(inner_batch_of(count), self.queue, base, timestamp)
        self.queue.put(base, offset, size, 5)
        self.offsets.append(offset)
        return offset


def inner_batch_of(count: int) -> MessageExtBrokerInner:
    """A batch of so many, or a single message for 1."""
    if count == 1:
        return message(b"one", "B")
    flags = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
    body = encode_batch([(0, b"x", b"")] * count)
    return message(body, "B", sys_flag=flags, properties={"INNER_NUM": str(count)})


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Filled]:
    with open_log(tmp_path / "log", 1 << 16) as log:
        made = Filled(log, tmp_path / "queue")
        yield made
        made.queue.queue.close()


def test_an_entry_is_what_rocketmq_writes(filled: Filled):
    filled.put(1, timestamp=9)
    offset = filled.put(3, timestamp=10)
    data = next(filled.folder.iterdir()).read_bytes()
    size = len(filled.log.record(offset) or b"")
    assert BATCH_ENTRY.unpack_from(data, BATCH_CQ_STORE_UNIT_SIZE) == (offset, size, 5, 10, 1, 3, -1, 0)
    assert not any(data[2 * BATCH_CQ_STORE_UNIT_SIZE :])


def test_each_message_is_found_by_the_record_that_holds_it(filled: Filled):
    counts = [3, 1, 2, 5, 1, 1, 4, 2, 7]
    bases = []
    for count in counts:
        bases.append(filled.queue.max_offset)
        filled.put(count)
    assert len(filled.queue.queue.files) == 3
    for again in (False, True):
        queue = filled.again() if again else filled.queue
        assert (queue.min_offset, queue.max_offset) == (0, sum(counts))
        for base, count, offset in zip(bases, counts, filled.offsets, strict=True):
            for number in range(base, base + count):
                found = queue.expected_record(number)
                assert found is not None
                assert found[:2] == (base, offset)
                assert decode_record(filled.log.record(offset) or b"").queue_offset == base
                assert [entry.base for entry in queue.batches(number, 99)] == bases[bases.index(base) :]
        assert queue.entry(-1) is queue.entry(sum(counts)) is None


def test_positions_are_queue_offsets(filled: Filled):
    for count in (2, 3, 1, 4, 2):
        filled.put(count)
    queue = filled.queue
    for at, base in zip(filled.offsets, [0, 2, 5, 6, 10], strict=True):
        assert queue.position_of(at) == queue.first_offset_from(at) == base
        assert queue.position_of(at + 1) == queue.first_offset_from(at + 1)
    assert queue.position_of(1 << 40) == queue.first_offset_from(1 << 40) == 12
    assert queue.has_before(filled.offsets[3], 5)
    assert not queue.has_before(filled.offsets[2], 5)
    queue.cut(6)
    assert (queue.min_offset, queue.max_offset) == (0, 6)
    assert filled.again().max_offset == 6
    filled.put(2)
    assert [entry.base for entry in filled.queue.batches(0, 9)] == [0, 2, 5, 6]
    filled.queue.cut(0)
    assert filled.again().max_offset == 0


def test_it_begins_where_the_log_does_and_its_first_files_go(filled: Filled):
    for count in (2, 3, 1, 4, 2, 6):
        filled.put(count)
    queue = filled.queue
    queue.correct_min_offset(filled.offsets[2])
    assert queue.min_offset == 5
    assert queue.first_file_without_messages() is None
    queue.correct_min_offset(filled.offsets[5])
    assert queue.min_offset == 12
    first = queue.first_file_without_messages()
    assert first is queue.queue.files[0]
    first.remove().close()
    queue.queue.take_out(first)
    assert queue.begin_of_files == 10
    assert filled.again().min_offset == 10
    assert filled.queue.max_offset == 18
    assert [entry.base for entry in filled.queue.batches(11, 9)] == [10, 12]
    filled.queue.correct_min_offset(1 << 40)
    assert filled.queue.min_offset == 18


@pytest.mark.parametrize("counts", [[], [3, 2]])
def test_offsets_that_were_used_are_not_used_again(filled: Filled, counts: list[int]):
    for count in counts:
        filled.put(count)
    filled.queue.go_on_at(40)
    for again in (False, True):
        queue = filled.again() if again else filled.queue
        assert (queue.min_offset, queue.max_offset, queue.next_offset) == (0 if counts else 40, 40, 40)
        assert queue.entry(sum(counts)) is None
    filled.put(2)
    assert filled.queue.expected_record(41) is not None
    filled.queue.correct_min_offset(0)
    assert filled.again().min_offset == (0 if counts else 40)


def test_used_offsets_lead_to_the_record_before_them(filled: Filled):
    filled.put(3)
    offset = filled.put(2)
    filled.queue.go_on_at(9)
    filled.queue.go_on_at(12)
    for again in (False, True):
        queue = filled.again() if again else filled.queue
        size = len(filled.log.record(offset) or b"")
        assert queue.entry(11) == queue.entry(8) == queue.entry(4) == (offset, size, 5)
        assert queue.message_end(11) == offset + size
        assert queue.position_of(offset + 1) == 12


def test_a_queue_that_is_cut_after_a_gap_continues_after_it(filled: Filled):
    """The messages between were lost; their offsets were used all the same."""
    first = filled.put(3)
    filled.put(2, base=7)
    queue = filled.queue
    assert [entry.base for entry in queue.batches(5, 9)] == [7]
    assert queue.entry(5) is None
    queue.cut(7)
    assert (queue.max_offset, queue.message_end(6)) == (7, queue.message_end(0))
    assert filled.again().max_offset == 7
    filled.queue.go_on_at(20)
    assert filled.again().max_offset == 20
    assert filled.queue.entry(0) == filled.queue.entry(19)
    assert (filled.queue.min_offset, filled.queue.position_of(first)) == (0, 0)


@pytest.mark.proves("When the store is opened", "3. queues of batches")
@pytest.mark.parametrize(
    ("at", "value"),
    [
        (28, (1 << 40).to_bytes(8, "big")),  # msgBaseOffset
        (28, (4).to_bytes(8, "big")),
        (28, (2).to_bytes(8, "big")),
        (36, b"\0\0"),  # batchSize
        (36, b"\0\1"),
        (36, b"\0\4"),
        (8, bytes(4)),  # size
        (0, b"\xff" * 8),  # position
    ],
)
def test_entries_that_contradict_others_or_the_log_are_cut(filled: Filled, at: int, value: bytes):
    for count in (1, 2, 3, 2, 1, 1):
        filled.put(count)
    file = filled.queue.queue.files[0]
    overwrite(file, 2 * BATCH_CQ_STORE_UNIT_SIZE + at, value)
    told: list[str] = []
    changes: list[str] = []
    queue = filled.again()
    assert queue.is_doubtful
    assert queue.cut_doubtful(told, lambda: changes.append("first"))
    assert (queue.max_offset, changes, len(told)) == (3, ["first"], 1)
    assert not filled.again().is_doubtful
    assert filled.queue.max_offset == 3


def test_a_queue_that_is_ahead_of_the_log_is_left_to_the_recovery(filled: Filled):
    filled.put(1)
    filled.put(2)
    filled.log.queue.files[0].wrote = filled.offsets[1]
    queue = filled.again()
    assert (queue.is_doubtful, queue.max_offset) == (False, 3)


def test_a_last_entry_that_leads_to_another_record_is_cut(filled: Filled):
    filled.put(1)
    filled.put(2)
    position = BATCH_CQ_STORE_UNIT_SIZE + 28
    overwrite(filled.queue.queue.files[0], position, (9).to_bytes(8, "big"))
    queue = filled.again()
    assert (queue.is_doubtful, queue.max_offset) == (True, 1)


def test_what_the_log_does_not_have_cannot_be_entered(filled: Filled):
    with pytest.raises(StoreError, match="has no record of 100 bytes at 4096"):
        filled.queue.put(0, 4096, 100, 0)
    assert filled.queue.max_offset == 0


def test_unsynced_entries_have_their_place(filled: Filled):
    filled.queue.go_on_at(3)
    offset = filled.put(4)
    (found,) = filled.queue.unsynced_entries(filled.queue.queue.files[0])
    assert found == (BATCH_CQ_STORE_UNIT_SIZE, offset, len(filled.log.record(offset) or b""))


def test_an_invalid_count_counts_as_one(filled: Filled):
    for text in ("0", "-3", "x", "99999", "32768", ""):
        put = message(b"b", "B", sys_flag=INNER_BATCH_FLAG, properties=f"INNER_NUM\x01{text}\x02".encode())
        offset, _ = filled.log.append(put, filled.queue, 0, 5)
        assert inner_batch(filled.log.record(offset) or b"") == (5, 1)


def test_room_is_made_for_each_record_that_waits_and_for_no_more(filled: Filled, monkeypatch):
    queue, pending = filled.queue, []
    for count in (3, 1, 100, 2, 1, 7):
        base = queue.next_offset
        for _ in range(3):  # an append that fails, and is tried again
            queue.make_room(base + 1)
        offset, size = filled.log.append(inner_batch_of(count), queue, base, 7)
        pending.append((base, offset, size))
        queue.next_offset = base + count
    files = len(queue.queue.files)
    monkeypatch.setattr(LocalFileSystem, "open", no_more)
    monkeypatch.setattr(LocalFileSystem, "reopen", no_more)
    for base, offset, size in pending:
        queue.put(base, offset, size, 5)

    assert queue.max_offset == queue.next_offset == 114
    assert [entry.messages for entry in queue.batches(0, 9)] == [3, 1, 100, 2, 1, 7]
    assert files <= 5
    with pytest.raises(StoreError, match="Too many open files"):
        queue.make_room(queue.next_offset + 5 * 4)


def no_more(*_: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


async def filled_batch_queues(root: Path) -> None:
    store = make_store(root, batch_topics=["Batches"])
    await store.start()
    for queue_id in (0, 3):
        store.appender.put_inner_batch(inner_batch_batch_queues(b"a", b"b", queue_id=queue_id), 2)
    store.appender.put_message(message(b"c", "Plain"))
    store.appender.dispatch()
    await store.stop()


def kinds(store: MessageStore) -> dict[tuple[str, int], bool]:
    return {(queue.topic, queue.queue_id): queue.holds_batches for queue in store.queues}


WANTED = {("Batches", 0): True, ("Batches", 3): True, ("Plain", 0): False}


@pytest.mark.parametrize("lost", [False, True])
async def test_of_a_topic_that_is_not_known_folder_or_records_tell(tmp_path: Path, lost: bool):
    await filled_batch_queues(tmp_path / "store")
    if lost:
        shutil.rmtree(tmp_path / "store" / "batchconsumequeue")
        (tmp_path / "store" / "config" / "consumeQueueEnds.json").unlink()
        shutil.rmtree(tmp_path / "store" / "index")
    store = make_store(tmp_path / "store")
    await store.start()
    assert kinds(store) == WANTED
    queue = store.queues.find_or_create("Batches", 7)
    assert queue.holds_batches, "as the topic's other queues"
    await store.stop()


async def test_a_folder_that_contradicts_the_topic_keeps_the_store_shut(tmp_path: Path):
    await filled_batch_queues(tmp_path / "store")
    batches = tmp_path / "store" / "batchconsumequeue"
    (batches / "Batches").rename(tmp_path / "store" / "consumequeue" / "Batches")
    store = make_store(tmp_path / "store", batch_topics=["Batches"])
    with pytest.raises(StoreError, match=r"consumequeue/Batches exists, but topic Batches has queue\.type=BatchCQ"):
        await store.start()
    (tmp_path / "store" / "consumequeue" / "Batches").rename(batches / "Batches")
    (tmp_path / "store" / "consumequeue" / "Plain").rename(batches / "Plain")
    store = make_store(tmp_path / "store", batch_topics=["Batches"])
    await store.start()  # of Plain the store knows nothing else
    await store.stop()


async def test_a_topic_that_never_had_a_message_has_the_log_read_once(tmp_path: Path):
    """After an unclean stop without a folder it could have had some."""
    clock, root = FakeClock(), tmp_path / "store"
    store = make_store(root, clock, message_index_enable=False)
    await store.start()
    store.appender.put_message(message(b"known to be on disk", "Plain"))
    clock.advance(10)
    store.appender.put_message(message(b"stored last", "Plain"))
    await store.stop()
    for clean, read in ((True, 0), (False, 2), (False, 1), (True, 0)):
        if not clean:
            (root / "abort").write_text("1")
        (root / "config" / "consumeQueueEnds.json").unlink()
        store = make_store(root, clock, batch_topics=["Batches"], message_index_enable=False)
        await store.start()
        assert (store.recovery_report.clean_stop, store.recovery_report.dispatched) == (clean, read)
        assert store.queues.max_offset_in_queue("Plain", 0) == 2
        await store.stop()
