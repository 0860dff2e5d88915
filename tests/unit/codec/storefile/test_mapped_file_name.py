"""File names and offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.storefile.mapped_file_name import file_name_to_offset, offset_files, offset_to_file_name
from rocketbroker.common.errors import CodecError
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
