"""A topic that was deleted does not come back from the log."""

import asyncio
import errno
import shutil
import threading
from pathlib import Path

import pytest

from rocketbroker.common.file_system import LOCAL, LocalFileSystem
from rocketbroker.store.clean.topic_deletion import FILE_NAME, DeletedTopics
from rocketbroker.store.commitlog.put_message import PutMessageStatus
from rocketbroker.store.logfile.mapped_file import MappedFile, RemovedFile
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from tests.support.stores import crash_copy, make_store, message, read_queue
from tests.support.waiting import until


def test_marks_are_read_again_and_old_ones_dropped(tmp_path: Path):
    path, told = tmp_path / FILE_NAME, list[str]()
    marks = DeletedTopics(path, LOCAL)
    marks.load(told)
    marks.add({"A", "B"}, 100, 0)
    marks.add({"B"}, 300, 50)
    marks.add({"C"}, 400, 100)

    again = DeletedTopics(path, LOCAL)
    again.load(told)

    assert again.marks == marks.marks == {"B": 300, "C": 400}
    assert told == []


@pytest.mark.parametrize("text", ["", "{}", '{"deleted":[]}', '{"deleted":{"A":"x"}}'])
def test_what_the_file_held_before_is_used_when_it_is_damaged(tmp_path: Path, text: str):
    path, told = tmp_path / FILE_NAME, list[str]()
    marks = DeletedTopics(path, LOCAL)
    marks.add({"A"}, 100, 0)
    marks.add({"B"}, 200, 0)
    path.write_text(text)

    again = DeletedTopics(path, LOCAL)
    again.load(told)

    assert again.marks == {"A": 100}
    assert [one.startswith(f"{path} cannot be read") for one in told] == [True]


def test_marks_beyond_the_end_of_the_log_go_back_to_it(tmp_path: Path):
    path = tmp_path / FILE_NAME
    marks = DeletedTopics(path, LOCAL)
    marks.add({"A"}, 100, 0)
    marks.add({"B"}, 300, 0)

    assert marks.clamp(200).startswith(f"{path}: topics were deleted")
    assert not marks.clamp(200)

    again = DeletedTopics(path, LOCAL)
    again.load([])
    assert again.marks == {"A": 100, "B": 200}


@pytest.mark.parametrize(("mark", "min_offset"), [(0, 0), (700, 700), (700, 900)])
def test_a_mark_from_before_the_log_deletes_no_queue_whose_messages_expired(tmp_path: Path, mark: int, min_offset: int):
    queues = ConsumeQueueStore(tmp_path / "consumequeue", 200)
    queues.find_or_create("Topic", 0).go_on_at(5)
    marks = DeletedTopics(tmp_path / FILE_NAME, LOCAL)
    marks.add({"Topic"}, mark, 0)

    marks.finish(queues, min_offset)

    assert queues.topics == {"Topic"}
    queues.close()


async def filled(root: Path, **settings) -> MessageStore:
    store = make_store(root, **settings)
    await store.start()
    for number in range(5):
        store.appender.put_message(message(b"old %d" % number))
        store.appender.put_message(message(b"other %d" % number, "Other"))
    store.appender.dispatch()
    return store


@pytest.mark.proves("When the store is opened", "3. topics that were deleted")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("again", [0, 3])
async def test_a_deleted_topic_does_not_return_when_queues_are_rebuilt(tmp_path: Path, clean: bool, again: int):
    store = await filled(tmp_path / "store")
    assert await store.deletion.delete_topics({"Topic"}) == 1
    for number in range(again):
        store.appender.put_message(message(b"new %d" % number))
    store.appender.dispatch()
    root = tmp_path / "killed"
    if clean:
        await store.stop()
        shutil.copytree(tmp_path / "store", root)
        shutil.rmtree(root / "consumequeue")
    else:
        crash_copy(tmp_path / "store", root)
        await store.stop()

    store = make_store(root)
    await store.start()

    assert store.queues.topics == ({"Topic", "Other"} if again else {"Other"})
    assert [one.body for one in read_queue(store, "Topic", 0)] == [b"new %d" % number for number in range(again)]
    assert [one.body for one in read_queue(store, "Other", 0)] == [b"other %d" % number for number in range(5)]
    assert store.appender.put_message(message()).queue_offset == again
    await store.stop()


@pytest.mark.proves("When the store is opened", "3. topics that were deleted")
async def test_a_stop_between_mark_and_removal_finishes_the_deletion(tmp_path: Path, monkeypatch):
    store = await filled(tmp_path / "store")
    move_away, root = store.queues.move_away, tmp_path / "killed"

    def stop_before(topic: str) -> None:
        crash_copy(tmp_path / "store", root)
        move_away(topic)

    monkeypatch.setattr(store.queues, "move_away", stop_before)
    await store.deletion.delete_topics({"Topic"})
    await store.stop()

    store = make_store(root)
    await store.start()

    assert store.queues.topics == {"Other"}
    assert store.appender.put_message(message()).queue_offset == 0
    await store.stop()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_messages_that_come_meanwhile_are_rejected_and_none_is_acknowledged_in_vain(
    tmp_path: Path, monkeypatch, flush: str
):
    store = await filled(tmp_path / "store", flush_disk_type=flush)
    marking, go_on = threading.Event(), threading.Event()
    add = DeletedTopics.add

    def slow_add(*args) -> None:
        marking.set()
        assert go_on.wait(60)
        add(*args)

    monkeypatch.setattr(DeletedTopics, "add", slow_add)
    end = store.commit_log.max_offset
    deletion = asyncio.ensure_future(store.deletion.delete_topics({"Topic"}))
    await until(marking.is_set)

    for queue_id in (0, 1):
        refused = store.appender.put_message(message(queue_id=queue_id))
        assert refused.status is PutMessageStatus.TOPIC_BEING_DELETED
        assert refused.reason == "topic Topic is being deleted; create it again once the deletion is complete"
    assert store.appender.put_message(message(topic="Other")).queue_offset == 5
    assert len(read_queue(store, "Topic", 0)) == 5

    go_on.set()
    assert await deletion == 1
    assert store._deleted_topics.marks == {"Topic": end}
    assert store.appender.put_message(message()).queue_offset == 0
    await store.stop()


async def test_the_event_loop_does_not_wait_for_a_file_that_is_being_removed(tmp_path: Path, monkeypatch):
    store = await filled(tmp_path / "store")
    removing, go_on = threading.Event(), threading.Event()
    queue = store.queues.queues_of("Other")[0]
    remove = MappedFile.remove

    def slow_remove(file: MappedFile) -> RemovedFile:
        removing.set()
        assert go_on.wait(60)
        return remove(file)

    monkeypatch.setattr(MappedFile, "remove", slow_remove)
    removal = asyncio.ensure_future(asyncio.to_thread(store.queues.remove_file, queue, queue.queue.files[0]))
    await until(removing.is_set)
    deletion = asyncio.ensure_future(store.deletion.delete_topics({"Topic"}))
    await until(lambda: store._deleted_topics.marks)

    assert store.appender.put_message(message(topic="Other")).status is PutMessageStatus.PUT_OK
    assert not deletion.done()

    go_on.set()
    assert await deletion == 1
    removed = await removal
    assert removed is not None
    removed.close()
    await store.stop()


async def test_a_topic_whose_folder_cannot_be_renamed_stays_even_if_queues_are_rebuilt(tmp_path: Path, monkeypatch):
    store = await filled(tmp_path / "store")
    rename = LocalFileSystem.rename

    def refuse(self: LocalFileSystem, old: Path, new: Path) -> None:
        if old.name == "Topic":
            raise OSError(errno.EIO, "Input/output error", str(old))
        rename(self, old, new)

    monkeypatch.setattr(LocalFileSystem, "rename", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        await store.deletion.delete_topics({"Topic"})

    assert store.appender.put_message(message(b"old 5")).queue_offset == 5
    await store.stop()
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    store = make_store(tmp_path / "store")
    await store.start()
    assert [one.body for one in read_queue(store, "Topic", 0)] == [b"old %d" % number for number in range(6)]
    await store.stop()


async def test_a_topic_whose_note_cannot_be_synced_stays_even_if_queues_are_rebuilt(tmp_path: Path, monkeypatch):
    store = await filled(tmp_path / "store")
    sync_folder, failures = LocalFileSystem.sync_folder, iter([OSError(errno.EIO, "Input/output error")])

    def refuse_once(self: LocalFileSystem, folder: Path) -> None:
        if folder.name == "config" and (failure := next(failures, None)):
            raise failure
        sync_folder(self, folder)

    monkeypatch.setattr(LocalFileSystem, "sync_folder", refuse_once)
    with pytest.raises(OSError, match="Input/output error"):
        await store.deletion.delete_topics({"Topic"})

    assert store.appender.put_message(message(b"old 5")).queue_offset == 5
    await store.stop()
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    store = make_store(tmp_path / "store")
    await store.start()
    assert [one.body for one in read_queue(store, "Topic", 0)] == [b"old %d" % number for number in range(6)]
    await store.stop()


class Disk:
    """Refuses to rename the folder of ``Topic``, and from then on any table."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self._rename = LocalFileSystem.rename
        monkeypatch.setattr(LocalFileSystem, "rename", lambda _, old, new: self.rename(old, new))

    def rename(self, old: Path, new: Path) -> None:
        self.full = self.full or old.name == "Topic"
        if self.full:
            raise OSError(errno.EIO, "Input/output error", str(old))
        self._rename(LOCAL, old, new)


@pytest.mark.proves("When the store is opened", "3. topics that were deleted")
async def test_a_mark_that_cannot_be_taken_back_is_reported_once_and_tried_until_it_is(
    tmp_path: Path, monkeypatch, caplog
):
    store = await filled(tmp_path / "store")
    disk = Disk(monkeypatch)
    with pytest.raises(OSError, match="Input/output error"):
        await store.deletion.delete_topics({"Topic"})
    for _ in range(2):
        store.queue_flusher.flush()
    path = tmp_path / "store" / "config" / FILE_NAME
    assert len([record for record in caplog.records if "marks existing topics" in record.message]) == 1
    assert f"{path} marks existing topics as deleted and cannot be rewritten" in caplog.text
    assert "Input/output error" in caplog.text

    disk.full = False
    store.queue_flusher.flush()

    assert f"{path} is rewritten" in caplog.text
    root = crash_copy(tmp_path / "store", tmp_path / "killed")
    await store.stop()
    for folder in (root, tmp_path / "store"):
        store = make_store(folder)
        await store.start()
        assert [one.body for one in read_queue(store, "Topic", 0)] == [b"old %d" % number for number in range(5)]
        await store.stop()


async def test_the_next_deletion_takes_it_back_as_well(tmp_path: Path, monkeypatch):
    store = await filled(tmp_path / "store")
    disk = Disk(monkeypatch)
    with pytest.raises(OSError, match="Input/output error"):
        await store.deletion.delete_topics({"Topic"})
    disk.full = False

    assert await store.deletion.delete_topics({"Other"}) == 1

    again = DeletedTopics(tmp_path / "store" / "config" / FILE_NAME, LOCAL)
    again.load([])
    assert list(again.marks) == ["Other"]
    await store.stop()


async def test_a_clean_stop_leaves_no_deletion_to_finish(tmp_path: Path):
    store = await filled(tmp_path / "store")
    end = store.commit_log.max_offset
    await store.stop()
    marks = DeletedTopics(tmp_path / "store" / "config" / FILE_NAME, LOCAL)
    marks.add({"Topic"}, end, 0)

    store = make_store(tmp_path / "store")
    await store.start()

    assert len(read_queue(store, "Topic", 0)) == 5
    await store.stop()


async def test_a_deletion_continues_to_its_end_when_nobody_waits_for_it(tmp_path: Path, monkeypatch):
    store = await filled(tmp_path / "store")
    moving, go_on = threading.Event(), threading.Event()
    move_away = store.queues.move_away

    def slow_move(topic: str) -> None:
        moving.set()
        assert go_on.wait(60)
        move_away(topic)

    monkeypatch.setattr(store.queues, "move_away", slow_move)
    deletion = asyncio.ensure_future(store.deletion.delete_topics({"Topic"}))
    await until(moving.is_set)
    deletion.cancel()
    await asyncio.wait([deletion])
    stop = asyncio.ensure_future(store.stop())
    await asyncio.sleep(0)
    go_on.set()
    await stop

    assert sorted(path.name for path in (tmp_path / "store" / "consumequeue").iterdir()) == ["Other"]
