import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.common import open_files
from rocketbroker.common.errors import StoreError, TopicBeingDeletedError
from rocketbroker.common.file_system import LocalFileSystem
from rocketbroker.store.queue.consume_queue import ConsumeQueue
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

FILE = 200


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ConsumeQueueStore]:
    made = ConsumeQueueStore(tmp_path / "consumequeue", FILE)
    yield made
    made.close()


def test_queues_are_found_by_topic_and_number(store: ConsumeQueueStore):
    queue = store.find_or_create("A", 2)

    assert store.find_or_create("A", 2) is queue
    assert store.find("A", 2) is queue
    assert store.find("A", 1) is None
    assert store.queues_of("A") == {2: queue}
    assert store.queues_of("B") == {}
    assert store.topics == {"A"}


def test_new_queues_leave_mappings_to_those_that_exist(store: ConsumeQueueStore, tmp_path: Path, monkeypatch):
    limit, mapped = 10_000, 0
    monkeypatch.setattr(open_files.MAPPINGS, "_known", 0)
    monkeypatch.setattr(open_files, "max_map_count", lambda: limit)
    monkeypatch.setattr(open_files, "mapped_count", lambda: mapped)
    queue = store.for_message("A", 0)
    queue.make_room(1)
    mapped = 5625

    for topic, queue_id in (("A", 1), ("B", 0)):
        with pytest.raises(
            StoreError, match=rf"topic {topic} gets no new queue: 5,625 files are mapped.*10,000 mappings"
        ):
            store.for_message(topic, queue_id)

    assert (store.topics, list(store.queues_of("A"))) == ({"A"}, [0]), "nothing is left of those that were rejected"
    mapped = 7499
    assert store.for_message("A", 0) is queue
    queue.make_room(FILE // 20 + 1)
    assert len(queue.queue.files) == 2, "its next file is mapped"
    for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"):
        store.for_message(topic, 0).make_room(1)
    store.find_or_create("C", 0).make_room(1)  # for a message that the log has
    limit = 65_530
    store.for_message("B", 0).make_room(1)


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../up"])
def test_a_topic_never_leads_out_of_the_folder(store: ConsumeQueueStore, topic: str):
    with pytest.raises(StoreError, match="cannot be a folder name"):
        store.find_or_create(topic, 0)


def test_loading_maps_all_queues_and_skips_other_files(store: ConsumeQueueStore, tmp_path: Path):
    for topic, number in (("A", 0), ("A", 10), ("%RETRY%g", 0)):
        store.find_or_create(topic, number).put(0, 100 * number, 50, 0)
    (tmp_path / "consumequeue" / "stray").write_text("")
    (tmp_path / "consumequeue" / "A" / "lost+found").mkdir()
    again = ConsumeQueueStore(tmp_path / "consumequeue", FILE)

    again.load()

    assert again.topics == {"A", "%RETRY%g"}
    assert sorted(again.queues_of("A")) == [0, 10]
    assert again.max_physical_offset == 1050
    assert all(queue.max_offset == 1 for queue in again)
    again.close()


def test_truncating_and_correcting_reach_all_queues(store: ConsumeQueueStore):
    for number in range(2):
        for offset in range(3):
            store.find_or_create("A", number).put(offset, 100 * offset, 100, 0)

    for queue, position in store.positions_of(200).items():
        queue.cut(position)
    store.correct_min_offsets(100)

    assert [(queue.min_offset, queue.max_offset) for queue in store] == [(1, 2), (1, 2)]
    assert store.max_physical_offset == 200


def test_deleting_a_topic_removes_its_files(store: ConsumeQueueStore, tmp_path: Path):
    store.find_or_create("A", 0).put(0, 0, 10, 0)
    store.find_or_create("A", 1)
    store.find_or_create("B", 0).put(0, 0, 10, 0)

    assert store.delete_topic("A")
    assert not store.delete_topic("A")
    assert store.find("A", 0) is None
    again = store.find_or_create("A", 0)
    again.put(0, 0, 10, 7)

    store.remove_retired()

    assert again.entry(0) == (0, 10, 7)
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == ["A", "B"]
    assert store.delete_topic("A")
    store.remove_retired()
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == ["B"]


def test_deleting_a_topic_removes_what_was_set_aside(store: ConsumeQueueStore, tmp_path: Path):
    queue = store.find_or_create("A", 0)
    queue.put(0, 0, 10, 0)
    (queue.queue.directory / "00000000000000000000.damaged").touch()

    store.delete_topic("A")
    store.remove_retired()

    assert list((tmp_path / "consumequeue").iterdir()) == []


def test_what_a_stop_left_of_a_deleted_topic_is_removed_at_the_next_start(store: ConsumeQueueStore, tmp_path: Path):
    store.find_or_create("A", 0).put(0, 0, 10, 0)
    store.find_or_create("B", 0).put(0, 0, 10, 0)
    store.delete_topic("A")

    loaded = ConsumeQueueStore(tmp_path / "consumequeue", FILE)
    loaded.load()

    assert loaded.topics == {"B"}
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == ["B"]
    loaded.close()
    store.remove_retired()


def test_a_failed_removal_of_a_deleted_topic_is_retried_and_blocks_nothing_else(
    store: ConsumeQueueStore, tmp_path: Path, monkeypatch, caplog
):
    for topic in ("A", "B"):
        for number in range(2):
            store.find_or_create(topic, number).put(0, 0, 10, 0)
        store.delete_topic(topic)
    unlink = LocalFileSystem.unlink

    def refuse(self: LocalFileSystem, path: Path) -> None:
        if "A.deleted-0/1" in str(path):
            raise OSError(errno.EIO, "Input/output error", str(path))
        unlink(self, path)

    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "unlink", refuse)
        for _ in range(2):
            store.remove_retired()
    assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["A.deleted-0"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]

    store.remove_retired()

    assert list((tmp_path / "consumequeue").iterdir()) == []


def test_a_closed_topic_accepts_no_messages_but_is_readable(store: ConsumeQueueStore):
    queue = store.find_or_create("A", 0)
    store.find_or_create("B", 0)

    store.close_topics({"A"})

    for number in range(2):
        with pytest.raises(TopicBeingDeletedError, match="topic A is being deleted"):
            store.find_or_create("A", number)
    assert store.find("A", 0) is queue
    assert store.find_or_create("B", 1) is store.find("B", 1)
    store.open_topics({"A"})
    assert store.find_or_create("A", 0) is queue


def test_changed_files_are_given_until_they_were_all_taken(store: ConsumeQueueStore):
    for number in range(2):
        for offset in range(12):
            store.find_or_create("A", number).put(offset, 0, 10, 0)

    given = store.changed_files()
    next(given)
    given.close()

    files = [file for _, file in store.changed_files()]
    assert len(files) == 4
    for file in files:
        file.flushed = file.wrote
    assert list(store.changed_files()) == []
    store.find_or_create("A", 1).put(12, 0, 10, 0)
    assert [file.file_from_offset for _, file in store.changed_files()] == [FILE]


def test_queues_that_begin_before_the_log_are_returned_with_their_new_begin(store: ConsumeQueueStore):
    for topic, begin in (("A", 0), ("B", 150), ("C", 400)):
        for offset in range(3):
            store.find_or_create(topic, 0).put(offset, begin + 100 * offset, 100, 0)

    found = store.first_offsets(200)

    assert [(queue.topic, first) for queue, first in found.moved] == [("A", 2), ("B", 1)]
    assert [queue.min_offset for queue in store] == [0, 0, 0]


def test_a_queue_that_is_deleted_while_it_is_read_is_skipped(store: ConsumeQueueStore, monkeypatch):
    for topic in ("A", "B"):
        for offset in range(3):
            store.find_or_create(topic, 0).put(offset, 100 * offset, 100, 0)
    first_offset_from = ConsumeQueue.first_offset_from

    def delete_first(queue: ConsumeQueue, physical_offset: int) -> int:
        if store.delete_topic("A"):
            store.remove_retired()
        return first_offset_from(queue, physical_offset)

    monkeypatch.setattr(ConsumeQueue, "first_offset_from", delete_first)

    assert [(queue.topic, first) for queue, first in store.first_offsets(100).moved] == [("B", 1)]


def test_a_queue_that_cannot_be_read_is_reported_once_until_it_can(store: ConsumeQueueStore, tmp_path: Path, caplog):
    for topic in ("A", "B"):
        for offset in range(3):
            store.find_or_create(topic, 0).put(offset, 100 * offset, 100, 0)
    file = store.find_or_create("A", 0).queue.files[0]
    folder = tmp_path / "consumequeue" / "A" / "0"

    for _ in range(2):
        path, file.path = file.path, folder / "missing"
        for _ in range(2):
            found = store.first_offsets(100)
            assert [(queue.topic, first) for queue, first in found.moved] == [("B", 1)]
            assert [(error.filename, error.strerror) for error in found.unreadable] == [
                (str(folder), "No such file or directory")
            ]
        file.path = path
        assert [queue.topic for queue, _ in store.first_offsets(100).moved] == ["A", "B"]

    assert [record.message.split(";")[0] for record in caplog.records] == [
        f"{folder} cannot be read: No such file or directory"
    ] * 2


def test_a_file_is_removed_only_while_its_queue_is_in_service(store: ConsumeQueueStore):
    queues = [store.find_or_create(topic, 0) for topic in ("A", "B")]
    for queue in queues:
        queue.put(0, 0, 100, 0)
    store.delete_topic("B")

    removed = store.remove_file(queues[0], queues[0].queue.files[0])
    assert removed is not None
    removed.close()
    assert store.remove_file(queues[1], queues[1].queue.files[0]) is None

    assert not removed.path.exists()
    assert queues[1].queue.files[0].path.exists()
    store.remove_retired()


def test_topics_are_without_messages_when_all_their_queues_are(store: ConsumeQueueStore):
    for topic, queue_id in (("A", 0), ("A", 1), ("B", 0), ("B", 1)):
        queue = store.find_or_create(topic, queue_id)
        queue.put(0, 0, 100, 0)
        queue.next_offset = 1
    for topic, queue_id in (("A", 0), ("A", 1), ("B", 0)):
        store.find_or_create(topic, queue_id).min_offset = 1

    assert store.topics_without_messages() == {"A"}
    # A message that is stored, and not readable yet, counts.
    store.find_or_create("A", 0).next_offset = 2
    assert store.topics_without_messages() == set()
