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
