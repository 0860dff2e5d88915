"""A stretch of a CommitLog file in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.codec.storefile.log_window import LogExtent, LogWindow
from rocketbroker.common.errors import StoreError
from rocketbroker.common.local_file import LocalFile

DATA = bytes(range(256)) * 4
EXTENT = LogExtent(0, len(DATA), len(DATA))


@pytest.fixture
def source(tmp_path: Path) -> Iterator[LocalFile]:
    (tmp_path / "log").write_bytes(DATA)
    with LocalFile(tmp_path / "log", lambda error: StoreError(str(error))) as source:
        yield source


def test_what_is_loaded_ends_with_the_block_the_limit_or_the_file(source: LocalFile) -> None:
    window = LogWindow(source, EXTENT, 100, 150)
    for position, least, end in ((0, 0, 100), (100, 0, 150), (100, 70, 170), (140, 500, 640), (1_000, 99, 1_024)):
        window.load(position, least)
        assert (window.start, window.end) == (position, end)
        assert window.array().tobytes() == bytes(window.data) == DATA[position:end]


def test_a_load_beyond_the_limit_holds_nothing(source: LocalFile) -> None:
    window = LogWindow(source, EXTENT, 100, 150)
    for position in (200, 2_000):
        window.load(position)
        assert (window.start, window.end, len(window.array())) == (position, position, 0)


def test_bytes_inside_and_outside_of_the_window(source: LocalFile) -> None:
    window = LogWindow(source, EXTENT, 100)
    window.load(50)
    for position, length in ((50, 100), (49, 10), (140, 20), (1_020, 10), (1_024, 5), (2_000, 5)):
        assert window.at(position, length) == DATA[position : position + length]


def test_a_window_on_memory_copies_nothing() -> None:
    data = memoryview(DATA)[:700]
    window = LogWindow.on(data, LogExtent(0, len(DATA), 600))
    assert (window.start, window.end, bytes(window.data)) == (0, 600, DATA[:600])
    window.load(150, 1000)
    assert (window.start, window.end, window.array().tobytes()) == (150, 600, DATA[150:600])
    assert window.data.obj is DATA
    assert (window.at(100, 100), window.at(650, 100)) == (DATA[100:200], DATA[650:700])


def test_a_window_is_loaded_into_the_same_memory(source: LocalFile) -> None:
    window = LogWindow(source, EXTENT, 100)
    window.load(0)
    first = window.array()
    window.load(200)
    assert first.tobytes() == DATA[200:300]
