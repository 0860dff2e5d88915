import errno
import gc
import os
from pathlib import Path

import pytest

from rocketbroker.common.shared_memory import map_shared, mapped_count, max_map_count, sync_shared
from tests.support.stores import open_below


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(8192))
    return path


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def test_a_mapped_file_needs_no_descriptor(file: Path):
    fd = opened(file)
    mapping = map_shared(fd, 8192)
    os.close(fd)

    memoryview(mapping).cast("B")[4096:4101] = b"hello"
    sync_shared(mapping)

    assert file.read_bytes()[4096:4101] == b"hello"
    assert open_below(file.parent) == []


def test_it_is_mapped_until_the_last_view_of_it_goes(file: Path):
    gc.collect()  # mappings that earlier tests left to the collector
    fd, before = opened(file), mapped_count()
    view = memoryview(map_shared(fd, 8192)).cast("B")
    os.close(fd)
    part = view[:5]
    view.release()
    del view
    gc.collect()

    assert mapped_count() == before + 1
    assert str(file) in Path("/proc/self/maps").read_text()
    assert bytes(part) == bytes(5)
    part.release()
    del part
    assert mapped_count() == before
    assert str(file) not in Path("/proc/self/maps").read_text()


def test_a_mapping_that_the_kernel_rejects_is_reported(file: Path):
    before = mapped_count()
    fd = os.open(file, os.O_RDONLY)

    with pytest.raises(OSError, match="Permission denied") as refused:
        map_shared(fd, 8192)

    os.close(fd)
    assert refused.value.errno == errno.EACCES
    assert mapped_count() == before


def test_the_kernels_limit_is_known():
    assert (max_map_count() or 0) > 1000
