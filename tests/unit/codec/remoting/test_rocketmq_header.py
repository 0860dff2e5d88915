from struct import pack

import pytest

from rocketbroker.codec.remoting.remoting_command import RemotingCommand, request
from rocketbroker.codec.remoting.rocketmq_header import decode_rocketmq_header, encode_rocketmq_header
from rocketbroker.common.errors import LocalProtocolError, RemoteProtocolError
from tests.support.golden_frames import frames

FIXED = pack(">hbhii", 310, 0, 513, 7, 0)


def decoded(header: bytes):
    return decode_rocketmq_header(memoryview(header))


def test_the_layout_is_that_of_java():
    header = FIXED + pack(">i", 2) + b"hi" + pack(">i", 9) + pack(">h", 1) + b"b" + pack(">i", 2) + b"TT"

    command = decoded(header)

    assert command == RemotingCommand(310, {"b": "TT"}, 0, "JAVA", 7, "hi", "ROCKETMQ", 513)
    assert encode_rocketmq_header(command) == header


def test_no_remark_and_no_fields_are_two_zero_lengths():
    header = FIXED + pack(">ii", 0, 0)

    command = decoded(header)

    assert (command.remark, command.header) == (None, None)
    assert encode_rocketmq_header(command) == header


def test_fields_that_are_none_are_left_out():
    assert decoded(encode_rocketmq_header(request(1, {"a": None, "b": 1, "c": True}))).header == {"b": "1", "c": "true"}


@pytest.mark.parametrize(("code", "sent"), [(200050, 3442), (200151, 3543), (32767, 32767), (32768, -32768)])
def test_codes_beyond_16_bits_are_cut_as_java_cuts_them(code: int, sent: int):
    assert decoded(encode_rocketmq_header(request(code))).code == sent


def test_a_version_beyond_16_bits_is_cut():
    assert decoded(encode_rocketmq_header(RemotingCommand(1, version=70000))).version == 70000 - 65536


def test_an_unknown_language_goes_as_other():
    assert decoded(encode_rocketmq_header(RemotingCommand(1, language="COBOL"))).language == "OTHER"


def test_the_recorded_codes_beyond_16_bits_are_cut():
    codes = {frame.command().code for frame in frames() if frame.sender == "raw-bin"}

    assert {3442, 3443, 3444, 3445, 3446, 3447, 3448, 3463, 3543} <= codes


@pytest.mark.parametrize(
    ("rest", "cause"),
    [
        (b"", "has 13 bytes; at least 21 are needed"),
        (pack(">ii", -1, 0), "remark claims -1 bytes"),
        (pack(">ii", 5, 0), "remark claims 5 bytes"),
        (pack(">ii", 2**31 - 1, 0), "remark claims 2147483647 bytes"),
        (pack(">ii", 4, 0), "extFields length claims 4 bytes"),
        (pack(">ii", 0, -1), "extFields claims -1 bytes"),
        (pack(">ii", 0, 1), "extFields claims 1 bytes"),
        (pack(">ii", 0, 1) + b"x", "key length claims 2 bytes"),
        (pack(">iih", 0, 2, 5), "key claims 5 bytes"),
        (pack(">iih", 0, 2, -5), "key claims -5 bytes"),
        (pack(">iih", 0, 3, 1) + b"k", "value length claims 4 bytes"),
        (pack(">iihci", 0, 7, 1, b"k", 1), "value claims 1 bytes"),
        (pack(">iihci", 0, 7, 1, b"k", -1), "value claims -1 bytes"),
        (pack(">i", 1) + b"\xff" + pack(">i", 0), "not UTF-8"),
        (pack(">iihcic", 0, 8, 1, b"k", 1, b"\xff"), "not UTF-8"),
        (pack(">iihcic", 0, 8, 1, b"\xff", 1, b"v"), "not UTF-8"),
    ],
)
def test_a_length_past_the_header_is_rejected_and_named(rest: bytes, cause: str):
    with pytest.raises(RemoteProtocolError) as caught:
        decoded(FIXED + rest)

    assert cause in str(caught.value)


def test_a_field_name_the_length_has_no_room_for_is_not_sent():
    assert decoded(encode_rocketmq_header(request(1, {"k" * 32767: "v"}))).header == {"k" * 32767: "v"}
    with pytest.raises(LocalProtocolError, match="32768 bytes"):
        encode_rocketmq_header(request(1, {"k" * 32768: "v"}))


def test_empty_pairs_cost_no_more_than_a_header_of_real_fields():
    at_most = pack(">h", 1) + b"k" + pack(">i", 0)
    assert decoded(FIXED + pack(">ii", 0, 1_024 * len(at_most)) + at_most * 1_024).header == {"k": ""}

    with pytest.raises(RemoteProtocolError, match="extFields exceed the limit of 1024 fields"):
        decoded(FIXED + pack(">ii", 0, 1_025 * 6) + bytes(1_025 * 6))
