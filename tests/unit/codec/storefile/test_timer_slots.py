from array import array

import pytest

from rocketbroker.codec.storefile.timer_slots import encode_entries, is_delivered, slot_of, with_delivered

ENTRIES = encode_entries(array("q", [1000, 5, 1, 2000, 6, 4, 1000, 9, 1]))


def test_bytes_of_an_entry():
    assert ENTRIES[:20] == (1000).to_bytes(8, "big") + (5).to_bytes(8, "big") + (1).to_bytes(4, "big")
    assert len(ENTRIES) == 60


DAY_MS = 86_400_000


def test_both_slot_and_offset_are_below_those_of_one_pair():
    delivered = ((1000, 50), (2000, 20))
    for slot_ms, queue_offset, wanted in (
        (999, 49, True),
        (1000, 49, False),
        (999, 50, False),
        (1999, 19, True),
        (2000, 19, False),
        (1500, 20, False),
    ):
        assert is_delivered(delivered, slot_ms, queue_offset) is wanted
    assert not is_delivered((), 0, 0)


def test_no_pair_says_what_another_says():
    assert with_delivered((), 1000, 5) == ((1000, 5),)
    assert with_delivered(((1000, 5),), 2000, 7) == ((2000, 7),)
    assert with_delivered(((2000, 7),), 1000, 5) == ((2000, 7),)
    assert with_delivered(((2000, 7),), 1000, 9) == ((2000, 7), (1000, 9))
    assert with_delivered(((2000, 7), (1000, 9)), 2000, 9) == ((2000, 9),)


@pytest.mark.parametrize(
    ("ahead_ms", "way_ms"),
    [
        (0, 0),
        (2 * DAY_MS - 1000, 2 * DAY_MS - 1000),
        (2 * DAY_MS, DAY_MS),
        (2 * DAY_MS + DAY_MS * 2 // 3 - 1000, DAY_MS),
        (2 * DAY_MS + DAY_MS * 2 // 3, 2 * DAY_MS),
        (3 * DAY_MS, 2 * DAY_MS),
    ],
)
def test_the_way_to_a_slot(ahead_ms, way_ms):
    """Beyond the window half of it, or all of it when more than a third of it is left then."""
    assert slot_of(10_000 + ahead_ms, 10_999, 1000, 2 * DAY_MS) == 10_000 + way_ms


def test_each_way_leads_on():
    for precision_ms in (100, 1000):
        assert slot_of(900_000, 10_050, precision_ms, 2 * precision_ms) > 10_050 - precision_ms
