"""Ends of queues against what the recorder of stores knew, and of batches."""

from pathlib import Path

import pytest

from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.store_root import store_roots
from rocketbroker.analytics.queues.queue_end import queue_end
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_ENTRY
from tests.support import golden_store


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
