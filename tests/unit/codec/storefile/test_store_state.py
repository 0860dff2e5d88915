import pytest

from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint
from rocketbroker.codec.storefile.store_state import StoreState

CHECKPOINT = StoreCheckpoint(physic_msg_timestamp=10_000, logics_msg_timestamp=9_000, index_msg_timestamp=8_000)


def test_after_a_clean_stop_all_is_known():
    state = StoreState(False, (), StoreCheckpoint())

    assert state.is_known(1 << 60)
    assert state.is_index_known(1 << 60)


@pytest.mark.parametrize(
    ("stored", "known", "indexed"), [(5_000, True, True), (5_001, True, False), (6_001, False, False)]
)
def test_after_an_unclean_one_what_came_three_seconds_before_the_checkpoint(stored: int, known: bool, indexed: bool):
    state = StoreState(True, (), CHECKPOINT)

    assert (state.is_known(stored), state.is_index_known(stored)) == (known, indexed)


def test_the_index_knows_no_more_than_the_log():
    state = StoreState(True, (), CHECKPOINT._replace(index_msg_timestamp=99_000))

    assert state.index_known_ms == state.known_ms == 6_000
