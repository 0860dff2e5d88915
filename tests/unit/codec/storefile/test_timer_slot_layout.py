from array import array

from rocketbroker.codec.storefile.timer_slot_layout import count_entries, encode_entries

ENTRIES = encode_entries(array("q", [1000, 5, 1, 2000, 6, 4, 1000, 9, 1]))


def test_bytes_of_an_entry():
    assert ENTRIES[:20] == (1000).to_bytes(8, "big") + (5).to_bytes(8, "big") + (1).to_bytes(4, "big")
    assert len(ENTRIES) == 60


def test_sound_entries():
    assert count_entries(ENTRIES, 1000, 3000) == (3, 5, 9)
    assert count_entries(b"", 1000, 3000) == (0, -1, -1)


def test_what_a_crash_left_behind_them_does_not_count():
    assert count_entries(ENTRIES[:59], 1000, 3000) == (2, 5, 6)
    assert count_entries(ENTRIES + bytes(40), 1000, 3000) == (3, 5, 9)
    assert count_entries(ENTRIES + ENTRIES, 1000, 3000) == (3, 5, 9), "offsets ascend"
    assert count_entries(ENTRIES, 1000, 2000) == (1, 5, 5), "a slot of another file"
    assert count_entries(ENTRIES[:40] + ENTRIES[40:56] + b"\0\0\0\x07", 1000, 3000) == (2, 5, 6), "no such magic"
