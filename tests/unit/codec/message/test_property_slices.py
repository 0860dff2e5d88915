"""Properties found by numpy are those that ``get_property`` finds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.property_slices import property_slices

NAMES = (b"TAGS", b"KEYS", b"UNIQ_KEY")
PART = st.sampled_from([*NAMES, b"XTAGS", b"", b"a", b"two words", "ä".encode()])
PROPERTIES = st.lists(st.tuples(PART, PART)).map(lambda pairs: b"".join(b"%b\x01%b\x02" % pair for pair in pairs))
BETWEEN = st.sampled_from([b"", b"body", b"\x02TAGS\x01in the body\x02", b"\x01\x02"])


@given(st.lists(st.tuples(BETWEEN, PROPERTIES)))
def test_each_message_has_its_own(messages: list[tuple[bytes, bytes]]) -> None:
    data, at = b"", []
    for between, properties in messages:
        at.append(len(data) + len(between))
        data += between + properties
    lengths = np.array([len(properties) for _, properties in messages], np.int64)
    found = property_slices(np.frombuffer(data, np.uint8), np.array(at, np.int64), lengths, *NAMES)
    for name, slices in zip(NAMES, found, strict=True):
        values = [
            data[start : start + length] or None for start, length in zip(*map(np.ndarray.tolist, slices), strict=True)
        ]
        assert values == [get_property(properties, name) for _, properties in messages]
