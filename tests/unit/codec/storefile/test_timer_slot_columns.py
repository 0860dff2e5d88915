from array import array

import pytest

from rocketbroker.codec.storefile.timer_slot_columns import count_sound, parted_by_slot, undelivered
from rocketbroker.codec.storefile.timer_slots import encode_entries, is_delivered

ENTRIES = [(1000, 3, 1), (3000, 4, 1), (1000, 5, 4), (2000, 6, 1), (1000, 9, 1), (3000, 11, 4)]
FIELDS = array("q", [each for entry in ENTRIES for each in entry])
DATA = encode_entries(FIELDS)
NONE = array("q")


@pytest.mark.parametrize("written", range(len(ENTRIES) + 1))
def test_offsets_by_slot(written):
    assert parted_by_slot(DATA[: 20 * written], FIELDS[3 * written :], ()) == {
        1000: (array("q", [3, 9]), array("q", [5])),
        2000: (array("q", [6]), array("q")),
        3000: (array("q", [4]), array("q", [11])),
    }


def test_no_entries_have_no_slots():
    assert parted_by_slot(b"", NONE, ()) == {}


def test_delivered_messages_are_left_out_and_cancels_stay():
    for delivered in (((1001, 9),), ((2001, 7), (1001, 10)), ((5000, 100),)):
        found = parted_by_slot(DATA, NONE, delivered)
        left = [
            (slot, offset)
            for slot, offset, magic in ENTRIES
            if magic == 1 and not is_delivered(delivered, slot, offset)
        ]
        assert sorted((slot, offset) for slot, (messages, _) in found.items() for offset in messages) == sorted(left)
        assert [list(deletes) for _, (_, deletes) in sorted(found.items()) if deletes] == [[5], [11]]
        written = undelivered(FIELDS, delivered)
        assert parted_by_slot(encode_entries(written), NONE, ()) == found, "no more is written than is wanted"
        FIELDS.append(FIELDS.pop())  # nothing holds on to it


SOUND = encode_entries(array("q", [1000, 5, 1, 2000, 6, 4, 1000, 9, 1]))


def test_sound_entries():
    assert count_sound(SOUND, 1000, 3000) == (3, 5, 9)
    assert count_sound(b"", 1000, 3000) == (0, -1, -1)


def test_what_a_crash_left_behind_them_does_not_count():
    assert count_sound(SOUND[:59], 1000, 3000) == (2, 5, 6)
    assert count_sound(SOUND + bytes(40), 1000, 3000) == (3, 5, 9)
    assert count_sound(SOUND + SOUND, 1000, 3000) == (3, 5, 9), "offsets ascend"
    assert count_sound(SOUND, 1000, 2000) == (1, 5, 5), "a slot of another file"
    assert count_sound(SOUND[:40] + SOUND[40:56] + b"\0\0\0\x07", 1000, 3000) == (2, 5, 6), "no such magic"
