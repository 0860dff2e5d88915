import struct

import numpy as np
import pytest

from rocketbroker.codec.storefile.index_file_layout import decode_header
from rocketbroker.codec.storefile.index_slot_count import find_slot_count
from rocketbroker.common.errors import CodecError
from tests.support import golden_store


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_the_slots_of_recorded_files_are_found(name):
    found = [data for path, data in golden_store.files(name).items() if path.startswith("index/")]
    assert found
    for data in found:
        count = find_slot_count(decode_header(data), np.frombuffer(data, np.uint8))
        assert count == golden_store.MAX_HASH_SLOT_NUM


@pytest.mark.parametrize("entries", [1, 2, 5, 1000])
def test_a_file_that_does_not_say_is_refused(entries):
    data = struct.pack(">qqqqii", 5, 6, 7, 8, 1, entries).ljust(4240, b"\0")
    with pytest.raises(CodecError, match="slots cannot be told from its entries"):
        find_slot_count(decode_header(data), np.frombuffer(data, np.uint8))


def test_where_another_number_fits_the_last_entry_by_chance_all_entries_decide():
    """With 45 slots the first of two entries of a message stands where the second does with 50."""
    slots = [0] * 50
    slots[52 % 50], slots[7 % 50] = 1, 2
    assert 52 % 45 == 7
    entries = bytes(20) + struct.pack(">iqii", 52, 100, 0, 0) + struct.pack(">iqii", 7, 100, 0, 0)
    data = struct.pack(">qqqqii", 5, 6, 100, 100, 2, 3) + struct.pack(">50i", *slots) + entries
    data = data.ljust(4240, b"\0")
    assert find_slot_count(decode_header(data), np.frombuffer(data, np.uint8)) == 50
