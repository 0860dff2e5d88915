"""Properties are found in records of every layout."""

from itertools import accumulate, product

import pytest

from rocketbroker.codec.message.message_encoder import encode_record, topic_block
from rocketbroker.codec.message.message_sys_flag import host_flags
from rocketbroker.codec.message.record_properties import record_properties
from tests.support.stores import V4_HOST, V6_HOST


@pytest.mark.parametrize("topic", ["T", "t" * 127, "t" * 200])
@pytest.mark.parametrize("hosts", list(product([V4_HOST, V6_HOST], repeat=2)))
def test_each_layout(topic: str, hosts: tuple[bytes, bytes]):
    properties = [b"", b"a\x011\x02", b"a\x011\x02b\x01" + b"x" * 3000 + b"\x02"]
    records = [record(topic, hosts, raw, number) for number, raw in enumerate(properties)]
    starts = accumulate(map(len, records), initial=0)
    places = list(zip(starts, map(len, records), strict=False))

    found = record_properties(memoryview(b"".join(records)), places, len(topic_block(topic.encode())))

    assert found == properties


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
