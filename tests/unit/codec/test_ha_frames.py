"""HA frames: the stream recorded between Apache's servers, in pieces of any length, and streams that are wrong."""

from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest

from rocketbroker.codec.ha_frames import (
    HANDSHAKE_MAGIC,
    MAX_BODY,
    REPORT,
    TRANSFER_HEADER,
    BrokerIdentity,
    Introduction,
    LogPart,
    ReportReader,
    TransferReader,
)
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.common.errors import CodecError

GOLDEN = Path(__file__).parents[2] / "golden" / "ha"
REPORTS = (GOLDEN / "ha-103-slave-to-master.bin").read_bytes()
TRANSFERS = (GOLDEN / "ha-103-master-to-slave.bin").read_bytes()
CUTS: list[Callable[[bytes], list[bytes]]] = [
    lambda data: [data],
    lambda data: [data[at : at + 1] for at in range(len(data))],
    lambda data: [data[at : at + 13] for at in range(0, len(data), 13)],
]


def log_of(parts: list[LogPart]) -> bytes:
    """Return the bytes of the parts, which have to follow each other."""
    log = b""
    for part in parts:
        assert part.offset == len(log)
        log += part.data
    return log


@pytest.mark.parametrize("cut", CUTS)
def test_the_recorded_transfers_are_one_log(cut: Callable[[bytes], list[bytes]]):
    reader, parts = TransferReader(), list[LogPart]()
    for piece in cut(TRANSFERS):
        parts += reader.feed(piece)

    log = log_of(parts)
    assert (reader.end, len(log)) == (31377, 31377)
    assert any(not part.data for part in parts), "heartbeats"
    messages = decode_messages(log, decompress=False)
    assert [message.commit_log_offset for message in messages][:2] == [0, 0x122]


@pytest.mark.parametrize("cut", CUTS)
def test_the_last_recorded_report_counts(cut: Callable[[bytes], list[bytes]]):
    reader, found = ReportReader(), list[int | None]()
    for piece in cut(REPORTS):
        found.append(reader.feed(piece))

    assert [report for report in found if report is not None][-1] == REPORT.unpack(REPORTS[-8:])[0]


def test_the_first_report_of_an_empty_slave_is_zero():
    reader = ReportReader()
    assert (reader.feed(bytes(7)), reader.feed(bytes(1)), reader.feed(b"")) == (None, 0, None)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (pack(">qi", 0, -1), "announces -1 bytes for 0"),
        (pack(">qi", 0, MAX_BODY + 1), "at most 4,194,292 are possible"),
        (pack(">qi", -8, 0), "continues at -8"),
        (pack(">qi1sqi", 0, 1, b"x", 0, 1), "continues at 0 of the CommitLog, but sent it up to 1"),
        (pack(">qi1sqi", 0, 1, b"x", 2, 0), "continues at 2 of the CommitLog, but sent it up to 1"),
    ],
)
def test_a_transfer_that_does_not_fit_is_rejected(data: bytes, said: str):
    with pytest.raises(CodecError, match=said):
        TransferReader().feed(data)


@pytest.mark.parametrize("data", [pack(">q", -1), pack(">qq", 9, 8)])
def test_a_report_that_goes_back_is_rejected(data: bytes):
    with pytest.raises(CodecError, match="reports never go back"):
        ReportReader().feed(data)


def test_a_long_body_is_passed_on_as_it_comes():
    reader = TransferReader()
    header = TRANSFER_HEADER.pack(7, MAX_BODY)
    assert [(part.offset, len(part.data)) for part in reader.feed(header + bytes(1000))] == [(7, 1000)]
    assert [(part.offset, len(part.data)) for part in reader.feed(bytes(10))] == [(1007, 10)]


INTRODUCTION = Introduction(bytes(range(32)), BrokerIdentity("C", "broker-ä", 7))


@pytest.mark.parametrize("name", ["", "b", "broker-a", "ä" * 127])
def test_an_introduction_is_read_once_it_is_whole(name: str):
    given = INTRODUCTION._replace(broker=BrokerIdentity("C", name, 7))
    frame = given.encode()
    assert [Introduction.decode(frame[:at]) for at in range(len(frame))] == [None] * len(frame)
    assert Introduction.decode(frame + b"more") == (given, len(frame))


def test_no_offset_of_the_protocol_without_handshake_begins_as_one():
    frame = INTRODUCTION.encode()
    assert len(frame) % REPORT.size == 0
    assert REPORT.unpack(frame[-8:]) == (-1,)
    assert REPORT.unpack(HANDSHAKE_MAGIC)[0] < 0
    with pytest.raises(CodecError, match="reports never go back"):
        ReportReader().feed(frame)
    with pytest.raises(CodecError, match="the master"):
        TransferReader().feed(frame)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (REPORT.pack(0), "begins with the bytes 0000000000000000"),
        (HANDSHAKE_MAGIC[:-1] + b"\x02", "not with those of a handshake"),
        (HANDSHAKE_MAGIC + bytes(36) + pack(">H", 1_025), "announces a name of 1,025 bytes; at most 1,024"),
        (HANDSHAKE_MAGIC + bytes(36) + pack(">H", 1) + b"\xff" + pack(">H", 0), "is not UTF-8"),
        (INTRODUCTION.encode()[:-1] + b"\x00", "does not end as one"),
    ],
)
def test_an_introduction_that_is_none_is_rejected(frame: bytes, reason: str):
    with pytest.raises(CodecError, match=reason):
        Introduction.decode(frame)


def test_a_name_that_is_too_long_is_not_sent():
    with pytest.raises(CodecError, match="has 1,025 bytes, above 1,024"):
        INTRODUCTION._replace(broker=BrokerIdentity("C", "b" * 1_025, 7)).encode()
