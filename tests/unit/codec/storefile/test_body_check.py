"""Records that look torn, and properties that make whole ones look like that."""

import pytest

from rocketbroker.codec.message.message_encoder import encode_record
from rocketbroker.codec.storefile.body_check import SECTOR, damage_in, may_look_torn
from tests.support.stores import V4_HOST


def record(properties: bytes) -> bytes:
    return encode_record(0, 0, 0, 0, 0, 1, V4_HOST, 2, V4_HOST, 0, 0, b"body", b"Topic", properties)


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"k\x01v\x02",
        b"k\x01" + bytes(SECTOR - 2) + b"v",
        # 256 bytes and a multiple: the second byte of the length is zero.
        b"k\x01" + bytes(509) + b"v",
        bytes(SECTOR - 2) + b"kk",
    ],
    ids=["none", "one", "zeros", "512 bytes", "zeros first"],
)
def test_accepted_properties_look_whole_at_every_position(properties: bytes) -> None:
    whole = record(properties)

    assert not may_look_torn(properties)
    assert [damage_in(whole, position) for position in range(SECTOR)] == [None] * SECTOR


@pytest.mark.parametrize(
    "properties",
    [b"k\x01v\0", b"k\x01" + bytes(SECTOR) + b"v", bytes(SECTOR - 1) + b"k"],
    ids=["zero at the end", "sector of zeros", "sector with the length"],
)
def test_other_properties_look_torn_somewhere(properties: bytes) -> None:
    whole = record(properties)

    assert may_look_torn(properties)
    assert any(damage_in(whole, position) for position in range(SECTOR))
