"""Properties are found in records of every layout."""

from itertools import accumulate, product

import numpy as np
import pytest

from rocketbroker.codec.message.message_encoder import encode_record, topic_block
from rocketbroker.codec.message.message_sys_flag import host_flags
from rocketbroker.codec.message.record_properties import MANY, PropertyBlocks, record_properties
from tests.support.stores import V4_HOST, V6_HOST


@pytest.mark.parametrize("topic", ["T", "t" * 127, "t" * 200])
@pytest.mark.parametrize("hosts", list(product([V4_HOST, V6_HOST], repeat=2)))
@pytest.mark.parametrize("times", [1, MANY])
@pytest.mark.parametrize("base", [0, 1 << 40])
def test_each_layout(topic: str, hosts: tuple[bytes, bytes], times: int, base: int):
    properties = [b"", b"a\x011\x02", b"a\x011\x02b\x01" + b"x" * 3000 + b"\x02"] * times
    # Among them some of the other layout.
    records = [record(topic, hosts if n % 3 else (V4_HOST, V6_HOST), raw, n) for n, raw in enumerate(properties)]
    places = list(accumulate(map(len, records), initial=base))[:-1]
    sizes = list(map(len, records))

    data = memoryview(b"".join(records))
    found = record_properties(data, places, sizes, len(topic_block(topic.encode())), base)

    assert found.raws() == properties
    assert len(found) == len(properties)
    some = record_properties(data, np.array(places)[:2], np.array(sizes)[:2], len(topic_block(topic.encode())), base)
    assert some.raws() == properties[:2]


@pytest.mark.parametrize("count", [0, 1, MANY, 100])
def test_properties_that_are_here_one_by_one(count: int):
    raws = [b"a\x01%d\x02" % number for number in range(count)]
    assert PropertyBlocks.of(raws).raws() == raws


def record(topic: str, hosts: tuple[bytes, bytes], properties: bytes, number: int) -> bytes:
    return encode_record(
        0,
        0,
        number,
        0,
        host_flags(*hosts),
        1,
        hosts[0],
        2,
        hosts[1],
        0,
        0,
        b"b" * (number * 7),
        topic.encode(),
        properties,
    )
