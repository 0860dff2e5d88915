"""Records at known places of a file."""

from pathlib import Path

import numpy as np
import pytest

from rocketbroker.codec.storefile.scattered_records import ScatteredRecords
from rocketbroker.common.errors import StoreError
from rocketbroker.common.local_file import LocalFile
from tests.support.commit_log_writer import CommitLogWriter

SIZE = 1 << 18


def columns(places: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    positions, sizes = np.array(places, np.int64).T
    return positions, sizes


@pytest.mark.parametrize("near", [0, 1_000])
@pytest.mark.parametrize("at_once", [1, 3_000, 1 << 20])
@pytest.mark.parametrize("memory", [None, np.full(5_000, 0xFF, np.uint8)])
def test_records_are_read_whatever_is_between_them(
    tmp_path: Path, near: int, at_once: int, memory: np.ndarray | None
) -> None:
    writer = CommitLogWriter(tmp_path, SIZE)
    writer.append_many(300)
    path = writer.records[0][0]
    positions, sizes = columns([(position, size) for _, position, size in writer.records[::3]])
    with LocalFile(path, lambda error: StoreError(str(error))) as source:
        reader = ScatteredRecords(source, 0, near, at_once)
        groups = reader.groups(positions, sizes)
        for group in groups:
            records, sound = reader.read(positions[group], sizes[group], memory)
            assert sound.all()
            assert records.physical_offset.tolist() == positions[group].tolist()
    assert np.concatenate(groups).tolist() == list(range(100))
    assert len(groups) == 1 if at_once > SIZE else len(groups) > 5


def test_bytes_without_a_record_of_that_size_are_distinguished(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path, 4096)
    for _ in range(3):
        writer.append()
    path, second, size = writer.records[1]
    positions, sizes = columns([(0, size), (second, size + 1), (second + 1, size), (second * 2, size), (4_000, 500)])
    with LocalFile(path, lambda error: StoreError(str(error))) as source:
        assert ScatteredRecords(source, 0, 0, 1 << 20).read(positions, sizes)[1].tolist() == [
            *(True, False, False, True, False)
        ]
        long = ScatteredRecords(source, 0, 0, 10).claimed(positions, sizes)
        assert long.tolist() == [True, False, False, True, False]
        assert ScatteredRecords(source, 0, 0, size + 1).claimed(positions[:4], sizes[:4]).all()
