"""File names and offsets."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.storefile.store_file import (
    LogExtent,
    LogWindow,
    file_name_to_offset,
    offset_files,
    offset_to_file_name,
)
from rocketbroker.common.errors import CodecError, StoreError
from rocketbroker.common.local_file import LocalFile
from tests.support import golden_store


@given(st.integers(0, (1 << 63) - 1))
def test_names_round_trip(offset: int) -> None:
    assert file_name_to_offset(offset_to_file_name(offset)) == offset


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_golden_names(name: str) -> None:
    paths = [path for path in golden_store.files(name) if path.startswith(("commitlog/", "consumequeue/"))]
    assert len(paths) > 15
    for path in paths:
        assert offset_to_file_name(file_name_to_offset(path[-20:])) == path.rsplit("/", 1)[1]


@pytest.mark.parametrize(
    "name", ["", "0", "0" * 19, "0" * 21, "-" + "0" * 19, "0" * 19 + "\u0660", "9" * 20, "0" * 20 + "\n", "lock"]
)
def test_other_names_are_rejected(name: str) -> None:
    with pytest.raises(CodecError, match="20 decimal digits"):
        file_name_to_offset(name)


@pytest.mark.parametrize("offset", [-1, 1 << 63])
def test_offsets_outside_int64_are_rejected(offset: int) -> None:
    with pytest.raises(CodecError, match="outside 0"):
        offset_to_file_name(offset)


def test_files_come_by_offset_and_others_are_left_out() -> None:
    sizes = {f"{600:020d}": 600, f"{0:020d}": 600, f"{1200:020d}": 40, "600.tmp": 9, "draft": 1}
    assert offset_files(sizes, "a/b") == [
        (0, f"a/b/{0:020d}", 600),
        (600, f"a/b/{600:020d}", 600),
        (1200, f"a/b/{1200:020d}", 40),
    ]
    assert [file.path for file in offset_files(sizes)] == [f"{at:020d}" for at in (0, 600, 1200)]
    assert offset_files({}, "a") == []


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
