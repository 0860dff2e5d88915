from itertools import pairwise
from pathlib import Path
from weakref import WeakSet

import pytest

from rocketbroker.codec.message.message_const import TRANSACTION_PREPARED_TYPE
from rocketbroker.codec.storefile.log_walk import Stretch
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.commit_log_walker import LogWalk
from rocketbroker.store.dispatch import reput_message_service
from rocketbroker.store.dispatch.commit_log_dispatcher import CommitLogDispatcher, NoListener
from rocketbroker.store.dispatch.reput_message_service import ReputMessageService, step_like
from rocketbroker.store.index.index_service import IndexService
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from tests.support.slow_index import hits
from tests.support.stores import ALWAYS, message, open_log

NOW = 1_795_255_162_876


def no_damage(begin: int, end: int, why: str) -> None:
    pytest.fail(f"damage from {begin} to {end}: {why}")


def fill(log: CommitLog, queues: ConsumeQueueStore) -> list[int]:
    """Thirty messages for two queues, over several files, and a half one; the offsets of those that are queued."""
    offsets = []
    for number in range(30):
        queue = queues.find_or_create("Topic", number % 2)
        sent = message(bytes(500), queue_id=number % 2, properties={"UNIQ_KEY": f"U{number}", "TAGS": "a"})
        offsets.append(log.append(sent, queue, number // 2, NOW)[0])
    log.append(message(sys_flag=TRANSACTION_PREPARED_TYPE), queues.find_or_create("Topic", 0), 0, NOW)
    return offsets


def physical(queues: ConsumeQueueStore, queue_id: int) -> list[int]:
    queue = queues.find("Topic", queue_id)
    assert queue
    assert queue.next_offset == queue.max_offset
    return [entry[0] for at in range(queue.max_offset) if (entry := queue.entry(at))]


def test_messages_missing_from_queues_and_index_are_read_from_the_log(tmp_path: Path):
    with open_log(tmp_path / "log") as log:
        queues = ConsumeQueueStore(tmp_path / "cq", 200)
        index = IndexService(tmp_path / "index", 50, 200, lambda: "20261121095923270")
        reput = ReputMessageService(log, queues, CommitLogDispatcher(index, NoListener()), {}, no_damage)
        offsets = fill(log, queues)

        reput.catch_up(0, log.max_offset)
        reput.catch_up(log.max_offset, log.max_offset)
        reput.finish()

        assert reput.dispatched == 31

        assert physical(queues, 0) == offsets[::2]
        assert physical(queues, 1) == offsets[1::2]
        assert [hits(index.search("Topic", f"U{number}", 0, ALWAYS)) for number in range(30)] == [
            [at] for at in offsets
        ]
        assert len(log.queue.files) > 3
        queues.close()
        index.close()


def test_queued_messages_are_not_entered_again(tmp_path: Path):
    with open_log(tmp_path / "log") as log:
        queues = ConsumeQueueStore(tmp_path / "cq", 200)
        reput = ReputMessageService(log, queues, CommitLogDispatcher(None, NoListener()), {}, no_damage)
        offsets = fill(log, queues)
        reput.catch_up(0, log.max_offset)

        reput.catch_up(offsets[20], log.max_offset)

        assert reput.dispatched == 31 + 11

        assert physical(queues, 0) == offsets[::2]
        queues.close()


def test_it_begins_in_the_middle_where_the_log_does(tmp_path: Path):
    with open_log(tmp_path / "log") as log:
        queues = ConsumeQueueStore(tmp_path / "cq", 200)
        offsets = fill(log, ConsumeQueueStore(tmp_path / "unused", 200))
        log.queue.files.pop(0).delete()
        left = [at for at in offsets if at >= log.min_offset]

        ReputMessageService(log, queues, CommitLogDispatcher(None, NoListener()), {}, no_damage).catch_up(
            log.min_offset, log.max_offset
        )

        first = queues.find("Topic", 0)
        assert first
        assert first.min_offset == (30 - len(left) + 1) // 2
        assert [entry[0] for at in range(first.min_offset, 15) if (entry := first.entry(at))] == [
            at for at in offsets[::2] if at in left
        ]
        queues.close()


@pytest.mark.parametrize("first", [2, 5, 9, 25])
def test_a_queue_whose_messages_all_expired_goes_on_where_the_log_does(tmp_path: Path, first: int):
    with open_log(tmp_path / "log") as log:
        queues = ConsumeQueueStore(tmp_path / "cq", 100)  # five entries a file
        reput = ReputMessageService(log, queues, CommitLogDispatcher(None, NoListener()), {}, no_damage)
        queue = queues.find_or_create("Topic", 0)
        for number in range(4):
            log.append(message(), queue, number, NOW)
        reput.catch_up(0, log.max_offset)
        begin = log.max_offset
        queues.correct_min_offsets(begin)
        assert queue.min_offset == queue.max_offset == 4
        left = [log.append(message(), queue, first + number, NOW)[0] for number in range(3)]

        reput.catch_up(begin, log.max_offset)

        assert (queue.min_offset, queue.max_offset, queue.next_offset) == (first, first + 3, first + 3)
        assert [entry[0] for at in range(first, first + 3) if (entry := queue.entry(at))] == left
        assert queue.message_entry(first - 1) is None
        queues.close()
        again = ConsumeQueueStore(tmp_path / "cq", 100)
        again.load()
        loaded = again.find("Topic", 0)
        assert loaded
        assert (loaded.min_offset, loaded.max_offset) == (first, first + 3)
        again.close()


def test_messages_of_a_deleted_topic_do_not_come_back_after_new_ones(tmp_path: Path):
    with open_log(tmp_path / "log") as log:
        queues = ConsumeQueueStore(tmp_path / "cq", 200)
        reput = ReputMessageService(log, queues, CommitLogDispatcher(None, NoListener()), {}, no_damage)
        fill(log, queues)
        reput.catch_up(0, log.max_offset)
        queues.delete_topic("Topic")
        queue = queues.find_or_create("Topic", 0)
        new = [log.append(message(b"new"), queue, number, NOW)[0] for number in range(3)]
        reput.catch_up(new[0], log.max_offset)

        reput.catch_up(0, log.max_offset)

        assert physical(queues, 0) == new
        queues.close()


def test_the_memory_of_records_that_wait_for_dispatch_is_bounded_by_bytes(tmp_path: Path):
    with open_log(tmp_path / "log") as log:
        queues = ConsumeQueueStore(tmp_path / "cq", 200)
        reput = ReputMessageService(log, queues, CommitLogDispatcher(None, NoListener()), {}, no_damage)
        kept: WeakSet[Stretch] = WeakSet()
        offset = 0
        for size in [256 << 10] * 32 + [2 << 20] * 8 + [9 << 20]:
            stretch = Stretch(offset, memoryview(b""), [0], size)
            kept.add(stretch)
            reput.add(stretch)
            del stretch
            assert sum(each.end_offset - each.begin_offset for each in kept) <= 8 << 20
            offset += size
        assert not kept, "a stretch above the limit is read from the log"
        queues.close()


@pytest.mark.parametrize(("size", "step"), [(110, 256 << 10), (500, 2048 * 500), (1263, 2 << 20)])
def test_a_step_has_2048_messages_within_bounds(size: int, step: int):
    assert step_like(Stretch(7, memoryview(b""), [0, size, 2 * size], 3 * size)) == step


def test_a_step_that_reads_the_log_takes_a_limited_number_of_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reput_message_service, "_STEP_MESSAGES", 2)
    with open_log(tmp_path / "log") as log:
        queues = ConsumeQueueStore(tmp_path / "cq", 200)
        reput = ReputMessageService(log, queues, CommitLogDispatcher(None, NoListener()), {}, no_damage)
        offsets = fill(log, queues)
        dispatched = [0]

        while reput.offset < log.max_offset:
            reput.dispatch_some(log.max_offset)
            dispatched.append(reput.dispatched)

        # Four, or three more if a file ends after up to three.
        assert max(after - before for before, after in pairwise(dispatched)) <= 7
        assert dispatched[-1] == 31
        assert physical(queues, 0) == offsets[::2]
        queues.close()


def test_records_in_memory_of_which_some_may_not_be_read_yet_are_dispatched_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reput_message_service, "_FRESH", 1)
    with open_log(tmp_path / "log") as log:
        queues = ConsumeQueueStore(tmp_path / "cq", 200)
        reput = ReputMessageService(log, queues, CommitLogDispatcher(None, NoListener()), {}, no_damage)
        offsets = fill(log, queues)
        reput.add(next(iter(LogWalk(log.queue, 0, check_crc=False, end=offsets[6]))))

        reput.dispatch_some(offsets[3])

        assert (reput.offset, reput.dispatched) == (offsets[3], 3)
        reput.dispatch_some(offsets[6])
        assert (reput.offset, reput.dispatched) == (offsets[6], 6)
        queues.close()
