from array import array

from rocketbroker.codec.storefile.timer_slot_layout import encode_entries

ENTRIES = encode_entries(array("q", [1000, 5, 1, 2000, 6, 4, 1000, 9, 1]))


def test_bytes_of_an_entry():
    assert ENTRIES[:20] == (1000).to_bytes(8, "big") + (5).to_bytes(8, "big") + (1).to_bytes(4, "big")
    assert len(ENTRIES) == 60
