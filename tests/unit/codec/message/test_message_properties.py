"""Properties as dict and as raw bytes must tell the same story."""

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketbroker.codec.message import message_properties as mp
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_properties import find_properties, find_properties_of_batch
from rocketbroker.common.errors import CodecError
from tests.support import golden_store

word = st.text(st.sampled_from("AKSEY\x01\x02é"), max_size=6)
plain = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
raw_properties = st.lists(word, max_size=8).map(lambda words: "\x02".join(words).encode())


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_golden_properties_round_trip_and_each_is_found_alone(name: str) -> None:
    for _, record in golden_store.records(name):
        raw = decode_record(record).properties_bytes
        properties = mp.decode_properties(memoryview(raw))
        assert mp.encode_properties(properties) == raw
        assert {key: mp.get_property_text(memoryview(raw), key) for key in properties} == properties
        assert mp.get_property(raw, b"NO_SUCH") is None


@given(st.dictionaries(plain, plain, max_size=6))
def test_a_dict_comes_back(properties: dict[str, str]) -> None:
    raw = mp.encode_properties(properties)
    assert mp.decode_properties(raw) == properties
    assert mp.decode_properties(raw.removesuffix(b"\x02")) == properties


@given(raw_properties, st.sampled_from(["KEYS", "A", "K", "é", "EY"]))
def test_the_fast_look_agrees_with_the_full_parse(raw: bytes, name: str) -> None:
    assert mp.get_property_text(raw, name) == mp.decode_properties(raw).get(name)


@given(raw_properties, st.sampled_from([b"KEYS", b"A", b"K"]), plain.map(str.encode))
def test_replacing_and_removing_touch_one_name_only(raw: bytes, name: bytes, value: bytes) -> None:
    before = mp.decode_properties(raw)
    before.pop(name.decode(), None)
    assert mp.decode_properties(mp.remove_property(raw, name)) == before
    after = mp.decode_properties(mp.replace_property(raw, name, value))
    assert after == before | {name.decode(): value.decode()}


def test_a_name_that_ends_like_another_is_another() -> None:
    raw = b"XKEYS\x01x\x02KEYS\x01k\x02KEYSX\x01y\x02"
    assert mp.get_property(raw, b"KEYS") == b"k"
    assert mp.get_property(b"XKEYS\x01x\x02", b"KEYS") is None
    assert mp.get_property(b"A\x01KEYS\x02", b"KEYS") is None
    assert mp.remove_property(raw, b"KEYS") == b"XKEYS\x01x\x02KEYSX\x01y\x02"
    assert mp.remove_property(raw, b"EYS") is raw


def test_of_two_pairs_the_later_counts_and_empty_ones_do_not() -> None:
    assert mp.get_property(b"A\x011\x02A\x012\x02", b"A") == b"2"
    assert mp.get_property(b"A\x011\x02A\x01\x02", b"A") == b"1"
    assert mp.get_property(b"A\x01\x02", b"A") is None
    assert mp.decode_properties(b"A\x01\x02\x01b\x02\x02c") == {}


def test_many_empty_pairs_are_passed_by() -> None:
    assert mp.get_property(b"A\x011\x02" + b"A\x01\x02" * 10_000, b"A") == b"1"


def test_a_missing_last_separator_is_made_up_before_appending() -> None:
    assert mp.append_property(b"A\x011", b"B", b"2") == b"A\x011\x02B\x012\x02"
    assert mp.append_property(b"", b"B", b"2") == b"B\x012\x02"


@pytest.mark.parametrize(("name", "value"), [("", "v"), ("n", ""), ("n\x01", "v"), ("n", "\x02v"), ("n", "v\x01")])
def test_an_invalid_pair_is_rejected(name: str, value: str) -> None:
    with pytest.raises(CodecError):
        mp.encode_properties({name: value})


def test_length_is_counted_in_bytes() -> None:
    mp.check_properties_length(b"x" * 32767)
    with pytest.raises(CodecError, match="take 32768 bytes; at most 32767"):
        mp.check_properties_length(b"x" * 32768)


def test_bytes_that_are_no_text_do_not_stop_the_others() -> None:
    assert mp.decode_properties(b"A\x01\xff\x02B\x01b\x02") == {"A": "�", "B": "b"}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", (None, None, None)),
        (b"TAGS\x01a\x02UNIQ_KEY\x01U\x02OTHER\x01x\x02KEYS\x01k l\x02", (b"a", b"U", b"k l")),
        (b"KEYS\x01k", (None, None, b"k")),
        (b"TAGS\x01\x02XTAGS\x01y\x02TAGSX\x01z\x02", (None, None, None)),
        (b"TAGS\x01a\x02TAGS\x01b\x02", (b"b", None, None)),
        (b"KEYS\x01k\x02UNIQ_KEY\x01U\x02TAGS\x01a", (b"a", b"U", b"k")),
        (b"UNIQ_KEY\x01U\x02UNIQ_KEY\x01V\x02", (None, b"V", None)),
        (b"UNIQ_KEY\x01U\x02UNIQ_KEY\x01\x02", (None, b"U", None)),
        (b"XUNIQ_KEY\x01U\x02TAGS\x01a\x02", (b"a", None, None)),
    ],
)
def test_three_properties_are_read_in_one_pass(raw: bytes, expected: tuple[bytes | None, ...]):
    assert mp.find_properties(raw) == (*expected, False)
    assert mp.find_properties(raw) == (*expected, False)


@pytest.mark.parametrize("name", sorted(mp.BROKER_PROPERTIES))
@pytest.mark.parametrize(
    "raw", [b"%b\x01v\x02UNIQ_KEY\x01U\x02", b"UNIQ_KEY\x01U\x02A\x01b\x02%b\x01v\x02", b"%b\x01v"]
)
def test_properties_for_the_broker_are_noticed(name: bytes, raw: bytes):
    assert mp.find_properties(raw % name)[3]
    assert not mp.find_properties(raw % (b"X" + name))[3]


_NAMES = st.sampled_from(["TAGS", "UNIQ_KEY", "KEYS", "DELAY", "XUNIQ_KEY", "A", ""])


@given(st.lists(st.tuples(_NAMES, st.text("ab", max_size=3)), max_size=6), st.booleans())
def test_what_is_found_is_what_all_pairs_say(pairs: list[tuple[str, str]], ended: bool):
    raw = "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode() + b"\x02" * ended
    all_pairs = mp.decode_properties(raw)

    tags, unique_key, keys, special = mp.find_properties(raw)

    texts = {
        name: value and value.decode()
        for name, value in zip(("TAGS", "UNIQ_KEY", "KEYS"), (tags, unique_key, keys), strict=True)
    }
    assert texts == {name: all_pairs.get(name) for name in texts}
    assert special == any(name == "DELAY" for name, _ in pairs)


# What the layout of a batch is found by, in every order: separators, names, and texts that end like a name.
pieces = st.sampled_from([b"\x01", b"\x02", b"UNIQ_KEY\x01", b"TAGS\x01", b"KEYS\x01", b"UNIQ", b"X", b"a", b"b"])
raw_properties_batch_properties = st.lists(pieces, max_size=8).map(b"".join)
# Equal but for the middle, as the messages of most batches are.
middles = st.lists(st.text("\x01\x02ab", min_size=2, max_size=2), min_size=1, max_size=6)


def one_by_one(raws: list[bytes]) -> list[tuple[bytes | None, ...]]:
    return [find_properties(raw)[:3] for raw in raws]


def by_column(raws: list[bytes]) -> list[tuple[bytes | None, ...]]:
    found = find_properties_of_batch(raws)
    if len(lengths := set(map(len, raws))) == 1:
        assert find_properties_of_batch(raws, lengths.pop()) == found
    return list(zip(*found[:3], strict=True))


@given(st.lists(raw_properties_batch_properties, min_size=1, max_size=6))
def test_any_batch_has_the_properties_of_its_messages(raws: list[bytes]) -> None:
    assert by_column(raws) == one_by_one(raws)


@given(raw_properties_batch_properties, middles, raw_properties_batch_properties)
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
