"""Values and texts gathered by numpy are those of plain slices."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.byte_columns import distinct_texts, gather, rows_at


def test_values_are_gathered_aligned_or_not():
    data = np.frombuffer(bytes(range(20)), np.uint8)

    assert gather(data, ">i4", np.array([0, 1, 16])).tolist() == [0x00010203, 0x01020304, 0x10111213]
    assert rows_at(data, np.array([2, 17]), 3).tolist() == [[2, 3, 4], [17, 18, 19]]


@given(st.lists(st.sampled_from([b"", b"a", b"ab", b"abc", b"b", *[b"topic-%d" % number for number in range(50)]])))
def test_different_texts_are_numbered(texts: list[bytes]):
    lengths = np.array(list(map(len, texts)), np.int64)
    starts = np.cumsum(lengths) - lengths

    found, numbers = distinct_texts(np.frombuffer(b"".join(texts), np.uint8), starts, lengths)

    assert [found[number] for number in numbers.tolist()] == texts
    assert len(set(found)) == len(found) == len(set(texts))
