from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketbroker.codec.message.batch_properties import find_properties_of_batch
from rocketbroker.codec.message.message_properties import find_properties

# What the layout of a batch is found by, in every order: separators, names, and texts that end like a name.
pieces = st.sampled_from([b"\x01", b"\x02", b"UNIQ_KEY\x01", b"TAGS\x01", b"KEYS\x01", b"UNIQ", b"X", b"a", b"b"])
raw_properties = st.lists(pieces, max_size=8).map(b"".join)
# Equal but for the middle, as the messages of most batches are.
middles = st.lists(st.text("\x01\x02ab", min_size=2, max_size=2), min_size=1, max_size=6)


def one_by_one(raws: list[bytes]) -> list[tuple[bytes | None, ...]]:
    return [find_properties(raw)[:3] for raw in raws]


def by_column(raws: list[bytes]) -> list[tuple[bytes | None, ...]]:
    found = find_properties_of_batch(raws)
    if len(lengths := set(map(len, raws))) == 1:
        assert find_properties_of_batch(raws, lengths.pop()) == found
    return list(zip(*found[:3], strict=True))


@given(st.lists(raw_properties, min_size=1, max_size=6))
def test_any_batch_has_the_properties_of_its_messages(raws: list[bytes]) -> None:
    assert by_column(raws) == one_by_one(raws)


@given(raw_properties, middles, raw_properties)
@example(b"UNIQ_KEY\x01", ["ab", "a\x02"], b"\x02TAGS\x01a")
@example(b"UNIQ_KEY\x01", ["ab", "ba"], b"\x02UNIQ_KEY\x01ab\x02")
@example(b"X", ["ab", "ba"], b"UNIQ_KEY\x01")
def test_messages_alike_have_their_properties(before: bytes, middle: list[str], after: bytes) -> None:
    raws = [before + text.encode() + after for text in middle]
    assert by_column(raws) == one_by_one(raws)


# The same properties in the orders of Java's, Go's, C++'s and our own client.
ORDERS = {
    "Java": b"KEYS\x01k\x02UNIQ_KEY\x017F00%02d\x02WAIT\x01true\x02TAGS\x01TagA",
    "Go": b"UNIQ_KEY\x017F00%02d\x02TAGS\x01TagA\x02KEYS\x01k\x02",
    "C++": b"KEYS\x01k\x02TAGS\x01TagA\x02UNIQ_KEY\x017F00%02d\x02WAIT\x01true\x02",
    "ours": b"WAIT\x01true\x02UNIQ_KEY\x017F00%02d\x02KEYS\x01k\x02TAGS\x01TagA\x02",
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_any_differing_byte_of_any_message_is_found(order: bytes) -> None:
    for count in (1, 2, 3, 5):
        for number, byte in product(range(count), b"\0\x01\x02 BU\xff"):
            raws = [order % each for each in range(count)]
            for position in range(len(raws[0])):
                changed = raws.copy()
                changed[number] = raws[number][:position] + bytes([byte]) + raws[number][position + 1 :]
                assert by_column(changed) == one_by_one(changed)


@pytest.mark.parametrize("keys", [["K1", "K2"], ["K1", "K22"], ["K1", "K1"]])
def test_tags_and_keys_of_messages_that_differ_in_their_unique_keys(keys: list[str]) -> None:
    raws = [b"KEYS\x01k\x02UNIQ_KEY\x01%b\x02WAIT\x01true\x02TAGS\x01T\x02" % key.encode() for key in keys]

    found = find_properties_of_batch(raws)

    assert list(found.tags) == [b"T", b"T"]
    assert list(found.unique_keys) == [key.encode() for key in keys]
    assert list(found.keys) == [b"k", b"k"]
    assert not found.joined_unique_keys


def test_unique_keys_of_messages_without_keys_are_joined_too() -> None:
    found = find_properties_of_batch([b"UNIQ_KEY\x01K%d\x02TAGS\x01T\x02" % number for number in range(3)])

    assert found.joined_unique_keys == b"K0K1K2"
