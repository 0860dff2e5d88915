"""What is found in many messages at once is what is found in each."""

from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.find_properties_many import find_properties_many
from rocketbroker.codec.message.message_properties import find_properties

parts = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"\x01", b"\x02", b"a", b"", b"XTAGS", b"KEYS2", b"\xc3\xa9 k"])
raws = st.lists(st.lists(parts, max_size=12).map(b"".join), min_size=1, max_size=8)


@given(raws)
def test_many_have_what_each_has(each: list[bytes]):
    assert list(zip(*find_properties_many(each), strict=True)) == [find_properties(raw)[:3] for raw in each]


def test_the_last_pair_with_a_value_counts():
    raw = b"TAGS\x01a\x02UNIQ_KEY\x01U\x02TAGS\x01b\x02TAGS\x01\x02KEYS\x01k l"

    assert find_properties_many([b"", raw, b"KEYS\x01m\x02"]) == (
        [None, b"b", None],
        [None, b"U", None],
        [None, b"k l", b"m"],
    )
