"""Which topics have queues of batches."""

import shutil
from pathlib import Path

import pytest

from rocketbroker.common.errors import StoreError
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock
from tests.support.stores import inner_batch, make_store, message


async def filled(root: Path) -> None:
    store = make_store(root, batch_topics=["Batches"])
    await store.start()
    for queue_id in (0, 3):
        store.appender.put_inner_batch(inner_batch(b"a", b"b", queue_id=queue_id), 2)
    store.appender.put_message(message(b"c", "Plain"))
    store.appender.dispatch()
    await store.stop()


def kinds(store: MessageStore) -> dict[tuple[str, int], bool]:
    return {(queue.topic, queue.queue_id): queue.holds_batches for queue in store.queues}


WANTED = {("Batches", 0): True, ("Batches", 3): True, ("Plain", 0): False}


@pytest.mark.parametrize("lost", [False, True])
async def test_of_a_topic_that_is_not_known_folder_or_records_tell(tmp_path: Path, lost: bool):
    await filled(tmp_path / "store")
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
    await filled(tmp_path / "store")
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
