from pathlib import Path

import pytest

from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint as CheckpointLayout
from rocketbroker.common.errors import StoreError
from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from tests.support import golden_store


def test_without_a_file_nothing_is_known(tmp_path: Path):
    checkpoint = StoreCheckpoint(tmp_path / "checkpoint")

    checkpoint.load()

    assert checkpoint.min_timestamp(with_index=True) == 0


def test_an_empty_file_is_as_none(tmp_path: Path):
    (tmp_path / "checkpoint").touch()
    checkpoint = StoreCheckpoint(tmp_path / "checkpoint")

    checkpoint.load()

    assert checkpoint.min_timestamp(with_index=False) == 0


def test_a_broken_file_is_rejected_with_what_to_do(tmp_path: Path):
    (tmp_path / "checkpoint").write_bytes(b"short")

    with pytest.raises(StoreError, match=r"cannot read .*checkpoint "):
        StoreCheckpoint(tmp_path / "checkpoint").load()


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_fields_of_other_releases_are_kept(name: str, tmp_path: Path):
    path = tmp_path / "checkpoint"
    path.write_bytes(golden_store.files(name)["checkpoint"])
    checkpoint = StoreCheckpoint(path)

    checkpoint.load()
    checkpoint.save()

    assert path.read_bytes() == golden_store.files(name)["checkpoint"]
    assert checkpoint.layout.physic_msg_timestamp == golden_store.manifest(name)["checkpoint"]["physicMsgTimestamp"]


@pytest.mark.proves("When the store is opened", "2. torn tail")
def test_the_earliest_of_the_times_counts_and_three_seconds_before_it(tmp_path: Path):
    checkpoint = StoreCheckpoint(tmp_path / "checkpoint")
    checkpoint.advance(physic_msg_timestamp=50_000, logics_msg_timestamp=40_000, index_msg_timestamp=30_000)

    assert checkpoint.min_timestamp(with_index=False) == 37_000
    assert checkpoint.min_timestamp(with_index=True) == 27_000


def test_a_time_of_zero_is_no_time_and_other_fields_stay(tmp_path: Path):
    checkpoint = StoreCheckpoint(tmp_path / "checkpoint")
    checkpoint.layout = checkpoint.layout._replace(confirm_phy_offset=7, logics_physical_offset=8)
    checkpoint.advance(physic_msg_timestamp=50_000)

    checkpoint.advance(physic_msg_timestamp=0, logics_msg_timestamp=10)
    checkpoint.save()
    again = StoreCheckpoint(tmp_path / "checkpoint")
    again.load()

    assert again.layout == (50_000, 10, 0, 0, 7, 8)
    assert (tmp_path / "checkpoint").stat().st_size == 4096


@pytest.mark.proves("The steps of a message", "5. checkpoint")
def test_times_go_back_with_the_clock(tmp_path: Path):
    checkpoint = StoreCheckpoint(tmp_path / "checkpoint")
    checkpoint.advance(physic_msg_timestamp=50_000, logics_msg_timestamp=50_000, index_msg_timestamp=30_000)

    checkpoint.advance(physic_msg_timestamp=40_000)

    assert checkpoint.layout[:3] == (40_000, 40_000, 30_000), "what is stored from now on is in no queue yet"
    said_too_much = checkpoint.says_too_much
    checkpoint.save()
    checkpoint.advance(physic_msg_timestamp=41_000)
    assert (said_too_much, checkpoint.says_too_much) == (True, False)
    assert checkpoint.min_timestamp(with_index=False) == 37_000


@pytest.mark.parametrize("data", [bytes(100), bytes(5000), b"\xff" * 4096, CheckpointLayout(2 * 10**12).encode()])
def test_an_invalid_value_is_an_error(tmp_path: Path, data: bytes):
    (tmp_path / "checkpoint").write_bytes(data)
    checkpoint = StoreCheckpoint(tmp_path / "checkpoint")

    with pytest.raises(StoreError, match="checkpoint has"):
        checkpoint.load(1_795_255_162_876)

    assert checkpoint.layout == CheckpointLayout()
