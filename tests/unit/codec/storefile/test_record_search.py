"""Ends of commit-log files."""

import pytest

from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.storefile.record_search import SECTOR, damage_in, fits, may_look_torn
from tests.support import golden_store
from tests.support.stores import V4_HOST


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_golden_records_went_where_they_fit(name: str) -> None:
    size = golden_store.COMMIT_LOG_FILE_SIZE
    records = golden_store.records(name)
    for offset, record in records:
        assert fits(len(record), size - (offset % size))


def test_the_record_after_the_golden_blank_did_not_fit_before_it() -> None:
    (blank,) = golden_store.manifest("clean")["blanks"]
    behind = dict(golden_store.records("clean"))[golden_store.COMMIT_LOG_FILE_SIZE]
    assert not fits(len(behind), blank["size"])


def test_eight_bytes_stay_for_the_blank() -> None:
    assert fits(92, 100)
    assert not fits(93, 100)


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
