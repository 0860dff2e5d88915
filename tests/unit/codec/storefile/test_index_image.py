import struct

import pytest

from rocketbroker.codec.storefile import index_image
from rocketbroker.codec.storefile.index_file_layout import decode_header
from rocketbroker.codec.storefile.index_image import find_slot_count
from rocketbroker.common.errors import CodecError
from tests.support import golden_store


def slot_count(data: bytes) -> int:
    return find_slot_count(decode_header(data), len(data), lambda position, length: data[position : position + length])


@pytest.mark.parametrize("at_once", [1, 7, 1 << 16])
@pytest.mark.parametrize("name", golden_store.NAMES)
def test_the_slots_of_recorded_files_are_found(name, at_once, monkeypatch):
    monkeypatch.setattr(index_image, "_AT_ONCE", at_once)
    found = [data for path, data in golden_store.files(name).items() if path.startswith("index/")]
    assert found
    for data in found:
        count = slot_count(data)
        assert count == golden_store.MAX_HASH_SLOT_NUM


@pytest.mark.parametrize("entries", [1, 2, 5, 1000])
def test_a_file_that_does_not_say_is_rejected(entries):
    data = struct.pack(">qqqqii", 5, 6, 7, 8, 1, entries).ljust(4240, b"\0")
    with pytest.raises(CodecError, match="slots cannot be told from its entries"):
        slot_count(data)


@pytest.mark.parametrize("at_once", [1, 2, 1 << 16])
def test_where_another_number_fits_the_last_entry_by_chance_all_entries_decide(at_once, monkeypatch):
    """With 45 slots the first of two entries of a message stands where the second does with 50."""
    monkeypatch.setattr(index_image, "_AT_ONCE", at_once)
    slots = [0] * 50
    slots[52 % 50], slots[7 % 50] = 1, 2
    assert 52 % 45 == 7
    entries = bytes(20) + struct.pack(">iqii", 52, 100, 0, 0) + struct.pack(">iqii", 7, 100, 0, 0)
    data = struct.pack(">qqqqii", 5, 6, 100, 100, 2, 3) + struct.pack(">50i", *slots) + entries
    data = data.ljust(4240, b"\0")
    assert slot_count(data) == 50


def test_little_of_a_large_file_is_held_at_once():
    """Of 4 MiB, with 1,000 slots and three entries."""
    slots = struct.pack(">1000i", *([0] * 7), 1, 2, 3, *([0] * 990))
    entries = b"".join(struct.pack(">iqii", 1_007 + number, 100 * (number + 1), 0, 0) for number in range(3))
    data = struct.pack(">qqqqii", 5, 6, 100, 300, 3, 4) + slots + bytes(20) + entries
    data = data.ljust(40 + 4_000 + 200_000 * 20, b"\0")
    asked = []

    def read_at(position, length):
        asked.append(length)
        return data[position : position + length]

    assert find_slot_count(decode_header(data), len(data), read_at) == 1_000
    assert sum(asked) > 3 << 20
    assert max(asked) < 2 << 20


def test_a_file_in_which_all_entries_have_one_offset_is_rejected(monkeypatch):
    monkeypatch.setattr(index_image, "_MOST", 10)
    data = struct.pack(">qqqqii", 5, 6, 100, 100, 2, 3).ljust(4240, b"\0")
    data = data[:240] + struct.pack(">iqii", 52, 100, 0, 0) * 200
    with pytest.raises(CodecError, match="slots cannot be told from its entries"):
        slot_count(data)


def test_unwritten_space_is_no_entry_of_the_first_message():
    """A new store's only message with a key lies at offset 0, as unwritten entries say of theirs."""
    slots, entries = 100_000, 400_000
    data = bytearray(40 + slots * 4 + entries * 20)
    data[:40] = struct.pack(">qqqqii", 5, 5, 0, 0, 1, 2)
    struct.pack_into(">i", data, 40 + 4 * 12_345, 1)
    struct.pack_into(">iqii", data, 40 + slots * 4 + 20, 12_345, 0, 0, 0)
    assert slot_count(bytes(data)) == slots


def test_a_key_of_hash_zero_may_be_the_last():
    slots, entries = 50, 200
    data = bytearray(40 + slots * 4 + entries * 20)
    data[:40] = struct.pack(">qqqqii", 5, 6, 100, 200, 2, 3)
    struct.pack_into(">ii", data, 40, 2, 1)
    struct.pack_into(">iqii", data, 40 + slots * 4 + 20, 51, 100, 0, 0)
    struct.pack_into(">iqii", data, 40 + slots * 4 + 40, 0, 200, 0, 0)
    assert slot_count(bytes(data)) == slots
