import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketbroker.codec.message.alike_messages import alike_messages
from rocketbroker.codec.message.message_batch import encode_batch, split_batch
from rocketbroker.codec.message.message_properties import find_properties
from rocketbroker.common.errors import CodecError

PROPERTIES = b"WAIT\x01true\x02UNIQ_KEY\x01%02d\x02TAGS\x01T\x02"
# Flag, body, unique id, and the properties around it.
messages = st.tuples(
    st.sampled_from([0, 0, 0, 7]),
    st.sampled_from([b"one", b"two", b"six", b"three"]),
    st.text("\x01\x02ab", min_size=2, max_size=2),
    st.sampled_from([b"", b"", b"A\x01b\x02", b"X", b"UNIQ_KEY\x01k\x02"]),
    st.sampled_from([b"\x02", b"\x02", b"\x02TAGS\x01T\x02", b"\x02KEYS\x01k\x02"]),
)


def batch_of(*bodies: bytes, first: int = 0, flag: int = 0, properties: bytes = PROPERTIES) -> bytes:
    return encode_batch((flag, body, properties % number) for number, body in enumerate(bodies, first))


def test_messages_of_all_batches_are_rows() -> None:
    batches = [batch_of(b"one", b"two", flag=7), batch_of(b"six", first=2, flag=7)]

    found = alike_messages([memoryview(each) for each in batches])

    assert found is not None
    assert found.rows.tobytes() == b"".join(batches)
    assert found.rows.shape == (3, len(batches[1]))
    assert (found.flag, found.body_length, found.tags) == (7, 3, b"T")
    assert found.bodies() == [b"one", b"two", b"six"]
    assert found.properties == PROPERTIES % 0
    assert found.unique_keys == b"000102"
    assert found.properties[slice(*found.unique_key)] == b"00"


def test_bodies_may_be_empty_or_end_with_zeros() -> None:
    for bodies in ([b"", b""], [b"\0\0", b"a\0"]):
        found = alike_messages([batch_of(*bodies)])
        assert found is not None
        assert found.bodies() == bodies


@given(st.lists(st.lists(messages, min_size=1, max_size=3), min_size=1, max_size=3))
@example([[(0, b"one", "ab", b"", b"\x02TAGS\x01T\x02")], [(0, b"two", "ba", b"", b"\x02TAGS\x01T\x02")] * 2])
@example([[(0, b"one", "a\x01", b"", b"\x02")], [(0, b"two", "\x01b", b"", b"\x02")] * 2])
def test_rows_have_the_properties_of_their_messages(given_batches) -> None:
    batches = [
        encode_batch(
            (flag, body, b"%bUNIQ_KEY\x01%b%b" % (before, key.encode(), after))
            for flag, body, key, before, after in each
        )
        for each in given_batches
    ]

    found = alike_messages(batches)

    if found is None:
        return
    parts = split_batch(b"".join(batches))
    length = found.unique_key[1] - found.unique_key[0]
    assert list(parts.flags) == [found.flag] * len(parts)
    assert list(parts.bodies) == found.bodies()
    for number, raw in enumerate(parts.properties):
        unique_key = found.unique_keys[number * length : (number + 1) * length]
        assert find_properties(raw)[:3] == (found.tags, unique_key, None)
        assert raw == found.properties[: found.unique_key[0]] + unique_key + found.properties[found.unique_key[1] :]


@pytest.mark.parametrize(
    "other",
    [
        batch_of(b"four"),
        batch_of(b"two", flag=1),
        batch_of(b"two", properties=PROPERTIES.replace(b"true", b"fals")),
        batch_of(b"two", properties=PROPERTIES.replace(b"\x01T\x02", b"\x01U\x02")),
        batch_of(b"two", properties=PROPERTIES.replace(b"%02d", b"\x02a%.0d")),
        batch_of(b"two")[:-1],
        b"",
    ],
    ids=["body length", "flag", "property before", "tags", "separator in unique id", "cut", "empty"],
)
def test_batches_that_differ_in_more_are_not_alike(other: bytes) -> None:
    assert alike_messages([batch_of(b"one"), other]) is None


@pytest.mark.parametrize(
    "properties",
    [b"", b"TAGS\x01T\x02", b"UNIQ_KEY\x01%02d\x02KEYS\x01k\x02", b"xUNIQ_KEY\x01%02d\x02", b"UNIQ_KEY\x01%02d\0\x02"],
    ids=["none", "no unique id", "keys", "another name", "NUL"],
)
def test_messages_need_a_unique_id_and_no_keys(properties: bytes) -> None:
    assert (
        alike_messages(
            [batch_of(b"one", properties=properties) if b"%" in properties else encode_batch([(0, b"one", properties)])]
        )
        is None
    )


@pytest.mark.parametrize("position", range(22))
def test_a_wrong_length_is_found(position: int) -> None:
    batch = bytearray(batch_of(b"one", b"two"))
    batch[position] ^= 0x41
    found = alike_messages([bytes(batch)])

    if found is not None:
        assert split_batch(bytes(batch)).bodies == tuple(found.bodies())
    elif position < 4 or 16 <= position < 20:
        with pytest.raises(CodecError):
            split_batch(bytes(batch))


def test_a_batch_shorter_than_a_message_is_none() -> None:
    assert alike_messages([b"\0\0\0\x16"]) is None
