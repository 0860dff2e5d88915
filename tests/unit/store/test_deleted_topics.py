"""A topic that was deleted does not come back from the log."""

import shutil
from pathlib import Path

import pytest

from rocketbroker.common.file_system import LOCAL
from rocketbroker.store.deleted_topics import FILE_NAME, DeletedTopics
from rocketbroker.store.message_store import MessageStore
from tests.support.stores import crash_copy, make_store, message, read_queue


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
    assert [one.startswith(f"{path}: cannot be read") for one in told] == [True]


async def filled(root: Path) -> MessageStore:
    store = make_store(root)
    await store.start()
    for number in range(5):
        store.put_message(message(b"old %d" % number))
        store.put_message(message(b"other %d" % number, "Other"))
    store.dispatch()
    return store


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("again", [0, 3])
async def test_it_stays_away_when_queues_are_made_anew(tmp_path: Path, clean: bool, again: int):
    store = await filled(tmp_path / "store")
    await store.mark_deleted({"Topic"})
    assert store.delete_topics({"Topic"}) == 1
    for number in range(again):
        store.put_message(message(b"new %d" % number))
    store.dispatch()
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
    assert store.put_message(message()).queue_offset == again
    await store.stop()


async def test_a_stop_between_mark_and_removal_finishes_the_deletion(tmp_path: Path):
    store = await filled(tmp_path / "store")
    await store.mark_deleted({"Topic"})
    root = crash_copy(tmp_path / "store", tmp_path / "killed")
    await store.stop()

    store = make_store(root)
    await store.start()

    assert store.queues.topics == {"Other"}
    assert store.put_message(message()).queue_offset == 0
    await store.stop()


async def test_messages_that_come_while_it_is_marked_lie_before_the_mark(tmp_path: Path, monkeypatch):
    store = await filled(tmp_path / "store")
    add, late = DeletedTopics.add, iter(range(2))

    def slow_add(marks: DeletedTopics, *args) -> None:
        if next(late, None) is not None:
            store.put_message(message(b"late"))
        add(marks, *args)

    monkeypatch.setattr(DeletedTopics, "add", slow_add)

    await store.mark_deleted({"Topic"})

    assert store._deleted_topics.marks == {"Topic": store.max_physical_offset}
    await store.stop()
