import asyncio
import errno
import os
from pathlib import Path

import pytest

from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.codec.storefile.consume_queue_layout import ENTRY
from rocketbroker.common.errors import StoreError, StoreFullError
from rocketbroker.store.dispatch import commit_log_dispatcher
from rocketbroker.store.dispatch.commit_log_dispatcher import CommitLogDispatcher, NoListener
from rocketbroker.store.index.index_service import AT_ONCE, BATCH_MESSAGES, IndexService
from rocketbroker.store.queue.consume_queue import ConsumeQueue
from rocketbroker.store.queue.dispatch_request import DispatchRequest, DispatchRun
from tests.support.slow_index import hits

NOW = 1_795_255_162_876


class Listener:
    """Somebody who waits."""

    def __init__(self, *, waiting: bool = True) -> None:
        self.waiting = waiting
        self.heard: list[tuple[str, int, int, int]] = []

    def arriving(self, topic: str, queue_id: int, max_offset: int, code: int) -> None:
        self.heard.append((topic, queue_id, max_offset, code))


def make_index(directory: Path) -> IndexService:
    return IndexService(directory, 50, 2000, lambda: "20261121095923270")


def request(
    queue: ConsumeQueue, number: int, offset: int, size: int = 100, code: int = 0, unique_key: str = ""
) -> DispatchRequest:
    return (queue, number, offset, size, code, NOW, (None, unique_key.encode() or None, None, False))


def test_messages_become_readable_in_order_and_are_reported(tmp_path: Path):
    listener = Listener()
    queue = ConsumeQueue("T", 2, tmp_path, 200)
    dispatcher = CommitLogDispatcher(None, listener)

    dispatcher.dispatch([request(queue, 0, 500, 100, tags_code("a")), request(queue, 1, 600, 110)])

    assert list(queue.entries(0, 9)) == [(500, 100, tags_code("a")), (600, 110, 0)]
    assert listener.heard == [("T", 2, 1, tags_code("a")), ("T", 2, 2, 0)]
    queue.queue.close()


def test_each_listener_that_waits_hears_of_each_message(tmp_path: Path):
    first, idle, last = Listener(), Listener(waiting=False), Listener()
    queue = ConsumeQueue("T", 2, tmp_path, 200)
    dispatcher = CommitLogDispatcher(None, first)
    dispatcher.also_notify(idle, last)

    dispatcher.dispatch([request(queue, 0, 500, 100, tags_code("a"))])
    dispatcher.entered(queue, 1, iter([0, tags_code("b")]))

    heard = [("T", 2, 1, tags_code("a")), ("T", 2, 2, 0), ("T", 2, 3, tags_code("b"))]
    assert (first.heard, idle.heard, last.heard) == (heard, [], heard)
    queue.queue.close()


@pytest.mark.parametrize("waiting", [True, False])
def test_a_run_becomes_readable_is_reported_and_indexed(tmp_path: Path, waiting: bool):
    index = make_index(tmp_path / "index")
    listener = Listener(waiting=waiting)
    queue = ConsumeQueue("T", 2, tmp_path / "cq", 200)
    run = DispatchRun(
        queue,
        0,
        ENTRY.pack(500, 100, tags_code("a")) + ENTRY.pack(600, 110, 0),
        NOW,
        tags=[b"a", None],
        unique_keys=[b"U0", b"U1"],
        keys=[None, b"k"],
    )

    CommitLogDispatcher(index, listener).dispatch_run(run)

    assert list(queue.entries(0, 9)) == [(500, 100, tags_code("a")), (600, 110, 0)]
    assert listener.heard == ([("T", 2, 1, tags_code("a")), ("T", 2, 2, 0)] if waiting else [])
    index.flush()
    assert [hits(index.search("T", key, 0, 2**62)) for key in ("U0", "U1", "k")] == [[500], [600], [600]]
    assert hits(index.search("T", "a", 0, 2**62, tag=True)) == [500]
    queue.queue.close()
    index.close()


def test_nobody_is_notified_when_nobody_waits(tmp_path: Path):
    listener = Listener(waiting=False)
    queue = ConsumeQueue("T", 0, tmp_path, 200)

    CommitLogDispatcher(None, listener).dispatch([request(queue, 0, 0)])

    assert (queue.max_offset, listener.heard) == (1, [])
    queue.queue.close()


def test_what_a_queue_has_already_is_not_told_again_but_indexed(tmp_path: Path):
    index = make_index(tmp_path / "index")
    listener = Listener()
    queue = ConsumeQueue("T", 0, tmp_path / "cq", 200)
    queue.put(0, 0, 100, 0)

    CommitLogDispatcher(index, listener).dispatch([request(queue, 0, 0, unique_key="U")])

    assert (queue.max_offset, listener.heard) == (1, [])
    index.flush()
    assert hits(index.search("T", "U", 0, 2**62)) == [0]
    queue.queue.close()
    index.close()


def test_keys_wait_for_a_batch(tmp_path: Path):
    index = make_index(tmp_path / "index")
    queue = ConsumeQueue("T", 0, tmp_path / "cq", 20 * 2000)
    dispatcher = CommitLogDispatcher(index, Listener())

    for number in range(BATCH_MESSAGES):
        assert index.waiting == number
        dispatcher.dispatch([request(queue, number, number, unique_key=f"U{number}")])

    assert index.waiting == 0
    assert index.end_physical_offset == BATCH_MESSAGES - 1
    queue.queue.close()
    index.close()


async def test_very_many_keys_are_entered_a_part_in_each_turn(tmp_path: Path):
    index = IndexService(tmp_path / "index", 5000, 4 * AT_ONCE, lambda: "20261121095923270")
    queue = ConsumeQueue("T", 0, tmp_path / "cq", 20 * 4 * AT_ONCE)
    dispatcher = CommitLogDispatcher(index, Listener(waiting=False))
    count = 2 * AT_ONCE + BATCH_MESSAGES

    dispatcher.dispatch([request(queue, number, number, unique_key=f"U{number}") for number in range(count)])
    ends = [index.end_physical_offset]
    while index.waiting:
        await asyncio.sleep(0)
        ends.append(index.end_physical_offset)

    assert ends == [-1, AT_ONCE - 1, 2 * AT_ONCE - 1, count - 1]
    queue.queue.close()
    index.close()


async def test_parts_wait_for_the_retry_after_an_error(tmp_path: Path, monkeypatch):
    index = IndexService(tmp_path / "index", 5000, 4 * AT_ONCE, lambda: "20261121095923270")
    queue = ConsumeQueue("T", 0, tmp_path / "cq", 20 * 4 * AT_ONCE)
    dispatcher = CommitLogDispatcher(index, Listener(waiting=False))
    tries = []

    def fail(most_parts: int) -> None:
        tries.append(most_parts)
        raise StoreError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(index, "flush", fail)
        dispatcher.dispatch([request(queue, number, number, unique_key="U") for number in range(2 * AT_ONCE)])
        for _ in range(5):
            await asyncio.sleep(0)
    assert tries == [1]
    monkeypatch.setattr(commit_log_dispatcher, "RETRY_S", 0.0)
    dispatcher._index_retry_at = 0.0

    dispatcher.enter_keys()
    for _ in range(3):
        await asyncio.sleep(0)

    assert index.waiting == 0
    queue.queue.close()
    index.close()


async def test_parts_go_on_after_an_error_that_nobody_foresaw(tmp_path: Path, monkeypatch):
    index = IndexService(tmp_path / "index", 5000, 4 * AT_ONCE, lambda: "20261121095923270")
    queue = ConsumeQueue("T", 0, tmp_path / "cq", 20 * 4 * AT_ONCE)
    dispatcher = CommitLogDispatcher(index, Listener(waiting=False))
    errors: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))

    def fail(_: int) -> None:
        raise ValueError("nobody foresaw it")

    with monkeypatch.context() as patched:
        patched.setattr(index, "flush", fail)
        dispatcher.dispatch([request(queue, number, number, unique_key="U") for number in range(2 * AT_ONCE)])
        await asyncio.sleep(0)
    assert [str(each["exception"]) for each in errors] == ["nobody foresaw it"]

    dispatcher.enter_keys()
    for _ in range(3):
        await asyncio.sleep(0)

    assert index.waiting == 0
    queue.queue.close()
    index.close()


def test_a_full_disk_keeps_back_the_queue_but_not_consumers_of_what_is_there(tmp_path: Path, monkeypatch, caplog):
    index = make_index(tmp_path / "index")
    queue = ConsumeQueue("T", 0, tmp_path / "cq", 200)
    dispatcher = CommitLogDispatcher(index, Listener())
    requests = [request(queue, number, 100 * number, unique_key=f"U{number}") for number in range(12)]
    dispatcher.dispatch(requests[:1])

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(StoreFullError):
            dispatcher.dispatch(requests[1:])
        dispatcher.flush_index()

    assert queue.max_offset == 10
    assert "cannot be indexed yet" in caplog.text
    dispatcher.dispatch(requests[10:])
    assert queue.max_offset == 12
    index.flush()
    assert [hits(index.search("T", f"U{number}", 0, 2**62)) for number in range(12)] == [[100 * n] for n in range(12)]
    queue.queue.close()
    index.close()


def test_without_waits_a_notification_does_nothing():
    listener = NoListener()

    assert not listener.waiting
    listener.arriving("T", 0, 1, 0)
