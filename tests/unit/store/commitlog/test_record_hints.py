"""What the queues say of the log is a guess: a walk finds the same records with it, whatever it says."""

from pathlib import Path

import numpy as np
import pytest

from rocketbroker.store.commitlog.commit_log_walker import LogWalk
from rocketbroker.store.commitlog.record_hints import RecordHints, hints_of
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.queue.consume_queue import ConsumeQueue
from tests.support.commit_log_writer import CommitLogWriter, overwrite

FILE = 1 << 16
COUNT = 500


@pytest.fixture
def writer(tmp_path: Path) -> CommitLogWriter:
    writer = CommitLogWriter(tmp_path / "log", FILE)
    for number in range(COUNT):
        writer.append(b"b" * (number % 300))
    return writer


def offsets_of(writer: CommitLogWriter) -> np.ndarray:
    return np.array([int(path.name) + position for path, position, _ in writer.records], np.int64)


def walked(writer: CommitLogWriter, hints: RecordHints | None) -> tuple[list[int], int, str]:
    queue = MappedFileQueue(writer.directory, writer.file_size)
    queue.load()
    walk = LogWalk(queue, 0, check_crc=True, hints=hints)
    offsets = [offset for stretch in walk for offset in stretch.offsets]
    queue.close()
    return offsets, walk.offset, walk.damage


@pytest.mark.parametrize(
    "kept",
    [slice(None), slice(0, 0), slice(0, 50), slice(100, None), slice(None, None, 2)],
    ids=["all", "none", "first", "last", "gaps"],
)
@pytest.mark.parametrize("shift", [0, 1, -300])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_walk_finds_the_same_records(writer: CommitLogWriter, kept: slice, shift: int, damaged: bool):
    if damaged:
        path, position, _ = writer.records[299]
        overwrite(path, position + 100, b"X")

    found = walked(writer, RecordHints(offsets_of(writer)[kept] + shift))

    assert found == walked(writer, None)
    assert len(found[0]) == (299 if damaged else COUNT)


def test_a_record_that_goes_beyond_the_bytes_is_left_for_the_next_ones(writer: CommitLogWriter):
    path, _, size = writer.records[0]
    hints = RecordHints(offsets_of(writer))

    assert hints.chain(0, path.read_bytes()[: size + 50]) == ([0], size)
    assert hints.chain(0, path.read_bytes()[: size - 1]) is None
    assert hints.chain(1, path.read_bytes()[1:]) is None
    assert hints.chain(0, b"") is None


def test_queues_say_where_their_messages_lie(tmp_path: Path):
    queues = [ConsumeQueue("Topic", number, tmp_path / str(number), 200) for number in range(2)]
    for number in range(30):
        queues[number % 2].put(number // 2, 1000 * number, 1000, 0)

    hints = hints_of({queue: queue.first_offset_from(5000) for queue in queues})

    assert hints._offsets.tolist() == [1000 * number for number in range(5, 30)]
    for queue in queues:
        queue.queue.close()
