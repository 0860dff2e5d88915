"""Entries of queues, by number, from files in memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from rocketbroker.codec.storefile.consume_queue_layout import BATCH_ENTRY, ENTRY, FILLER_ENTRY
from rocketbroker.codec.storefile.dtypes import BATCH_CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_ENTRY
from rocketbroker.codec.storefile.queue_files import QueueFiles, is_entry, is_filler_entry, queue_offsets
from rocketbroker.codec.storefile.store_file import offset_files

PER_FILE = 10


class BytesFile:
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    def read_at(self, position: int, length: int) -> bytes:
        return self._data[position : position + length]

    def read_into(self, position: int, buffer: memoryview) -> int:
        part = self._data[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)


def files_of(data: dict[int, bytes], layout: np.dtype = CONSUME_QUEUE_ENTRY, cut: int = 0) -> QueueFiles:
    """Files by the number of their first entry; ``cut`` bytes are gone from each by the time it is read."""
    contents = {f"{number * layout.itemsize:020d}": each for number, each in data.items()}

    @contextmanager
    def opened(path: str) -> Iterator[BytesFile]:
        yield BytesFile(contents[path][: len(contents[path]) - cut])

    return QueueFiles(offset_files({name: len(each) for name, each in contents.items()}), opened, layout)


def entry(number: int) -> bytes:
    return ENTRY.pack(number * 100, 90, number)


def three_files(missing: int = -1, written: int = 25) -> dict[int, bytes]:
    whole = b"".join(map(entry, range(written))).ljust(3 * PER_FILE * ENTRY.size, b"\0")
    step = PER_FILE * ENTRY.size
    return {at * PER_FILE: whole[at * step : (at + 1) * step] for at in range(3) if at != missing}


def numbers_in(files: QueueFiles, start: int = 0, stop: int | None = None, at_once: int = 4) -> list[tuple[int, int]]:
    """Number and tags code of each entry; the code is the number it was written under."""
    return [
        (number + at, int(each["tags_code"]))
        for number, entries in files.pieces(start, stop, at_once)
        for at, each in enumerate(entries)
    ]


@pytest.mark.parametrize(("start", "stop"), [(0, None), (7, 23), (10, 11), (29, 40), (12, 12)])
def test_entries_come_by_their_number_whichever_way_they_are_read(start: int, stop: int | None) -> None:
    files = files_of(three_files())
    assert (files.first, files.end, files.capacity) == (0, 30, 30)
    expected = [(at, at if at < 25 else 0) for at in range(start, min(30 if stop is None else stop, 30))]
    assert numbers_in(files, start, stop) == expected
    end = 30 if stop is None else stop
    assert files.read(start, end)["tags_code"].tolist() == [code for _, code in expected] + [0] * (
        end - start - len(expected)
    )


def test_a_missing_file_is_zeros_and_a_gap() -> None:
    files = files_of(three_files(missing=1))
    assert [(before.base, after.base) for before, after in files.gaps()] == [(0, 400)]
    assert files.capacity == 20
    assert files.read(0, 30)["tags_code"].tolist() == [*range(10), *[0] * 10, *range(20, 25), *[0] * 5]
    assert [number for number, _ in numbers_in(files)] == [*range(10), *range(20, 30)]


def test_a_file_that_became_shorter_gives_what_is_left() -> None:
    files = files_of({0: b"".join(map(entry, range(10)))}, cut=30)
    assert numbers_in(files) == [(at, at) for at in range(8)]
    assert files.read(0, 10)["tags_code"].tolist() == [*range(8), 0, 0]


@pytest.mark.parametrize("written", [0, 1, 10, 11, 25, 30])
def test_the_last_entry_is_found(written: int) -> None:
    last = files_of(three_files(written=written)).last_written()
    assert (last[0], last[1]["tags_code"].tolist()) == (written - 1, [written - 1]) if last else written == 0


def test_nothing_is_in_no_files() -> None:
    files = files_of({})
    assert (files.first, files.end, files.capacity, files.last_written()) == (0, 0, 0, None)
    assert list(files.pieces()) == []


def test_fillers_and_zeros_are_no_entries() -> None:
    data = FILLER_ENTRY + bytes(ENTRY.size) + entry(2) + ENTRY.pack(0, 90, 0) + ENTRY.pack(7, -5, 0)
    entries = files_of({0: data}).read(0, 5)
    assert is_filler_entry(entries).tolist() == [True, False, False, False, False]
    assert is_entry(entries).tolist() == [False, False, True, True, True]
    assert queue_offsets(entries, np.arange(5)).tolist() == [0, 1, 2, 3, 4]


def test_an_entry_of_a_batch_says_its_queue_offset() -> None:
    data = b"".join(BATCH_ENTRY.pack(at * 100, 90, 0, 1, at * 3, 3, -1, 0) for at in range(4))
    entries = files_of({0: data}, BATCH_CONSUME_QUEUE_ENTRY).read(0, 4)
    assert queue_offsets(entries, np.arange(4)).tolist() == [0, 3, 6, 9]
