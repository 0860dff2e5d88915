"""Folders of a store that are queues."""

import shutil
from pathlib import Path

import pytest

from rocketbroker.analytics.files.queue_files import queue_begin, queue_end, queue_numbers, queue_topics, queues
from rocketbroker.analytics.files.store_files import open_folder
from rocketbroker.analytics.files.store_names import store_roots
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_ENTRY
from rocketbroker.codec.storefile.queue_files import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from tests.support import golden_store
from tests.support.consume_queue_writer import write_queues
from tests.support.queued_store import QueuedStore


def test_queues_are_called_as_a_broker_writes_their_numbers(tmp_path: Path) -> None:
    names = (
        "10",
        "0",
        "7",
        "07",
        "2147483647",
        "2147483648",
        "\N{ARABIC-INDIC DIGIT THREE}",
        "x",
        "-1",
        "1 ",
        "9" * 200,
    )
    for name in names:
        (tmp_path / CONSUME_QUEUE / "T" / name).mkdir(parents=True)
    (tmp_path / CONSUME_QUEUE / "T" / "5").touch()
    folder = open_folder(store_roots(tmp_path)[0])
    assert queue_numbers(folder, CONSUME_QUEUE, "T") == [0, 7, 10, 2147483647]
    assert queue_numbers(folder, CONSUME_QUEUE, "None") == []


def test_what_is_left_of_a_deleted_topic_is_none(tmp_path: Path) -> None:
    for name in ("T", "T.deleted-0", "T.deleted-12", "T.deleted-x", "%DLQ%g.deleted-3"):
        (tmp_path / CONSUME_QUEUE / name).mkdir(parents=True)
    (tmp_path / CONSUME_QUEUE / "file").touch()
    folder = open_folder(store_roots(tmp_path)[0])
    assert queue_topics(folder, CONSUME_QUEUE) == ["T", "T.deleted-x"]


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_ends_are_those_of_recorded_queues(tmp_path: Path, name: str) -> None:
    store = golden_store.unpack(name, tmp_path)
    ends: dict[tuple[str, int], int] = {}
    for each in golden_store.manifest(name)["messages"]:
        queue = each["topic"], each["queueId"]
        if (store / "consumequeue" / each["topic"] / str(each["queueId"])).is_dir():
            ends[queue] = max(ends.get(queue, 0), each["queueOffset"] + 1)
    folder = open_folder(store_roots(store)[0])
    assert ends
    assert {queue: queue_end(folder, *queue) for queue in ends} == ends


def test_a_queue_begins_with_its_first_message_in_the_log(tmp_path: Path) -> None:
    store = QueuedStore(tmp_path / "store", 300)
    rows = [row for row in store.rows if (row["topic"], row["queue_id"]) == ("Orders", 1)]
    folder = open_folder(store_roots(store.root)[0])
    for number in (0, 1, 20, len(rows) - 1):
        assert queue_begin(folder, "Orders", 1, rows[number]["physical_offset"]) == number
        assert queue_begin(folder, "Orders", 1, rows[number]["physical_offset"] + 1) == number + 1
    assert queue_begin(folder, "Orders", 9, 0) is None
    shutil.rmtree(store.root / "consumequeue" / "Orders" / "1")
    write_queues(store.root, rows[7:])  # fillers precede the first entry
    assert queue_begin(folder, "Orders", 1, 0) == 7


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_begins_are_those_of_recorded_queues(tmp_path: Path, name: str) -> None:
    store = golden_store.unpack(name, tmp_path)
    folder = open_folder(store_roots(store)[0])
    found = [
        queue_begin(folder, topic, number, 0)
        for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)
        for topic, number in queues(folder, kind)
        if queue_end(folder, topic, number)
    ]
    assert found
    assert set(found) == {0}


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "T\\u", "a\0b", "\ud800", "x" * 256])
def test_a_topic_that_cannot_be_a_folder_name_is_reported_and_has_no_queue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    (tmp_path / "consumequeue" / "a" / "b" / "0").mkdir(parents=True)
    assert queue_end(open_folder(store_roots(tmp_path)[0]), topic, 0) is None
    assert f"the topic name {topic!r} in an offsets file is invalid" in caplog.text


def test_a_queue_of_batches_ends_after_the_messages_of_its_last_batch(tmp_path: Path) -> None:
    batches = [(1_000, 5), (1_005, 3), (1_008, 12)]
    entries = [
        BATCH_ENTRY.pack(number * 500, 500, 0, 0, first, size, -1, 0) for number, (first, size) in enumerate(batches)
    ]
    queue = tmp_path / "batchconsumequeue" / "Batches" / "1"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(b"".join(entries[:2]))
    (queue / f"{92:020d}").write_bytes(entries[2] + bytes(46))
    (tmp_path / "batchconsumequeue" / "Batches" / "2").mkdir()
    folder = open_folder(store_roots(tmp_path)[0])
    assert [queue_end(folder, "Batches", number) for number in range(4)] == [None, 1_020, 0, None]
