"""Index files: headers, slots, chains and the hashes of their keys."""

import pytest

from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.storefile import index_file_layout as layout
from rocketbroker.common.errors import CodecError
from tests.support import golden_store

SLOTS = golden_store.MAX_HASH_SLOT_NUM
FILES = [(name, number) for name in golden_store.NAMES for number in range(3)]


def golden(name: str, number: int) -> tuple[dict[str, object], bytes]:
    want = golden_store.manifest(name)["index"][number]
    return want, golden_store.files(name)["index/" + want["file"]]


@pytest.mark.parametrize(("name", "number"), FILES)
def test_golden_headers(name: str, number: int) -> None:
    want, data = golden(name, number)
    header = layout.decode_header(memoryview(data))
    assert len(data) == layout.file_size(SLOTS, golden_store.MAX_INDEX_NUM)
    assert header == (
        want["beginTimestamp"],
        want["endTimestamp"],
        want["beginPhyOffset"],
        want["endPhyOffset"],
        want["hashSlotCount"],
        want["indexCount"],
    )
    assert header.encode() == data[: layout.INDEX_HEADER_SIZE]


@pytest.mark.parametrize(("name", "number"), FILES)
def test_golden_entries_stand_for_their_keys(name: str, number: int) -> None:
    want, data = golden(name, number)
    header = layout.decode_header(data)
    records = dict(golden_store.records(name))
    entries = want["entries"]
    assert isinstance(entries, list)
    assert len(entries) == header.index_count - 1
    for index, entry in enumerate(entries, 1):
        at = layout.entry_position(index, SLOTS)
        fields = layout.ENTRY.unpack_from(data, at)
        assert fields == (entry["keyHash"], entry["phyOffset"], entry["timeDiffSec"], entry["prevIndex"])
        assert layout.key_hash_of(java_hash(entry["key"])) == fields[0]
        stored = decode_record(records[fields[1]]).store_timestamp
        assert (stored - header.begin_timestamp) // 1000 == fields[2]
        assert layout.ENTRY.pack(*fields) == data[at : at + layout.INDEX_SIZE]


@pytest.mark.parametrize(("name", "number"), FILES)
def test_each_golden_slot_leads_to_all_entries_of_its_hash(name: str, number: int) -> None:
    _, data = golden(name, number)
    header = layout.decode_header(data)
    reached, used = set(), 0
    for slot in range(SLOTS):
        at = layout.slot_position(slot, SLOTS)
        index = int.from_bytes(data[at : at + layout.HASH_SLOT_SIZE], "big")
        used += index != 0
        while index != 0:
            key_hash, _, _, previous = layout.ENTRY.unpack_from(data, layout.entry_position(index, SLOTS))
            assert key_hash % SLOTS == slot
            reached.add(index)
            index = previous
    assert (used, len(reached)) == (header.hash_slot_count, header.index_count - 1)


def test_keys_are_named_with_their_topic() -> None:
    assert layout.build_key("T", "k") == "T#k"
    assert layout.build_tag_key("T", "a") == "T#T#a"


def test_the_hash_without_an_absolute_value_is_zero() -> None:
    assert [layout.key_hash_of(value) for value in (-0x80000000, -5, 5, 0x7FFFFFFF)] == [0, 5, 5, 0x7FFFFFFF]


def test_default_size_and_a_fresh_file() -> None:
    assert layout.file_size() == 420_000_040
    assert layout.decode_header(bytes(40)) == layout.IndexHeader()
    for length in range(layout.INDEX_HEADER_SIZE):
        with pytest.raises(CodecError, match=f"index header has {length} bytes instead of 40"):
            layout.decode_header(bytes(length))
