"""The two checkpoints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.storefile import checkpoint_layout as layout
from rocketbroker.common.errors import CodecError
from tests.support import golden_store

int64 = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_the_golden_checkpoint(name: str) -> None:
    data = golden_store.files(name)["checkpoint"]
    found = layout.decode_checkpoint(memoryview(data))
    assert found[:5] == tuple(golden_store.manifest(name)["checkpoint"].values())
    assert found.logics_physical_offset in dict(golden_store.records(name))
    assert found.encode() == data


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_the_golden_timer_checkpoint(name: str) -> None:
    data = golden_store.files(name)["config/timercheck"]
    found = layout.decode_timer_checkpoint(data)
    assert found.encode() == data[:56]
    assert not any(data[56:])
    assert found.last_read_time_ms > 1_700_000_000_000
    assert found.last_timer_queue_offset == found.master_timer_queue_offset


@given(st.tuples(int64, int64, int64, int64, int64, int64))
def test_checkpoints_round_trip(fields: tuple[int, int, int, int, int, int]) -> None:
    data = layout.StoreCheckpoint(*fields).encode()
    assert len(data) == layout.CHECKPOINT_FILE_SIZE
    assert layout.decode_checkpoint(data) == fields


def test_short_files_are_rejected() -> None:
    for length in range(48):
        with pytest.raises(CodecError, match=f"checkpoint has {length} bytes instead of 48"):
            layout.decode_checkpoint(bytes(length))
    for length in range(56):
        with pytest.raises(CodecError, match=f"timer checkpoint has {length} bytes instead of 56"):
            layout.decode_timer_checkpoint(bytes(length))
