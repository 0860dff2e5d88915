import gzip
import json
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.remoting.frame import (
    FRAME_MAX_LENGTH,
    LENGTH,
    SERIALIZE_JSON,
    SERIALIZE_ROCKETMQ,
    check_length,
    decode_frame,
    encode_frame,
    frame_parts,
    other_protocol,
    split_frame,
)
from rocketbroker.codec.remoting.language_code import LANGUAGES
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand
from rocketbroker.common.errors import LocalProtocolError, RemoteProtocolError
from tests.support.golden_frames import FOREIGN, GOLDEN, GoldenFrame, frames, samples

INT = st.integers(-(2**31), 2**31 - 1)
SHORT = st.integers(-(2**15), 2**15 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)

commands = st.builds(
    RemotingCommand,
    code=SHORT,
    header=st.dictionaries(TEXT, TEXT, min_size=1, max_size=6) | st.none(),
    flag=INT,
    language=st.sampled_from(LANGUAGES),
    opaque=INT,
    remark=st.none() | TEXT.filter(bool),
    version=SHORT,
    body=st.binary(max_size=64),
)

# Senders that are not Java write their headers differently, each in ways of its own.
KEY_ORDER = "keys are not in the order of the alphabet"
NO_SERIALIZE_TYPE = "serializeTypeCurrentRPC is left out"
NUMBERS = "extFields holds JSON numbers or booleans"
LINE_FEED = "the header ends with a line feed"


def of_sender(sender: str) -> list[GoldenFrame]:
    return [frame for frame in frames() if frame.sender == sender]


def reencoded(frame: GoldenFrame) -> bytes:
    return encode_frame(frame.command(), SERIALIZE_ROCKETMQ if frame.binary else SERIALIZE_JSON)


def test_the_recording_is_complete():
    recorded = gzip.decompress((GOLDEN / "session.bin.gz").read_bytes())

    assert b"".join(frame.data for frame in frames()) == recorded
    assert len(frames()) == 13742


def test_each_recorded_frame_decodes_to_what_the_recorder_saw():
    for frame in frames():
        command = frame.command()
        assert LENGTH.unpack_from(frame.data)[0] == len(frame.data) - 4
        assert (command.code, command.opaque, command.flag) == (frame.code, frame.opaque, frame.flag), frame.number
        assert command.serialize_type == ("ROCKETMQ" if frame.binary else "JSON")
        assert bytes(command.body) == frame.body()


def test_frames_encode_back_to_the_same_bytes_for_all_that_java_sends():
    shares = {
        sender: (sum(reencoded(frame) == frame.data for frame in of_sender(sender)), len(of_sender(sender)))
        for sender in {frame.sender for frame in frames()}
    }

    assert shares == {
        "binserver-java-bin": (189, 189),
        "binserver-raw-bin": (90, 90),
        "binserver-raw-json": (4, 4),
        "broker-master": (864, 864),
        "broker-slave": (1662, 1662),
        "cpp-rocketmq-0.4.4": (0, 49),
        "go-client-2.1.2": (0, 41),
        "idle": (3, 3),
        "java-bin": (614, 614),
        "java-bin-v1": (1, 1),
        "java-json": (852, 852),
        "java-json-live": (3, 3),
        "java-json-v1": (59, 59),
        "master-restart": (77, 77),
        "master-shutdown": (14, 14),
        "mqadmin": (2651, 2651),
        "node-ali-ons-3.12.0": (0, 50),
        "raw": (1, 1),
        "raw-bin": (94, 94),
        "raw-json": (94, 94),
        "server-binary": (280, 280),
        "server-json": (6050, 6050),
    }


def peculiarities(frame: GoldenFrame) -> list[str]:
    """In which ways the header of a frame differs from what Java writes for the same command."""
    header = frame.header()
    pairs = _pairs(header)
    keys = [key for key, _ in pairs]
    values = dict(dict(pairs).get("extFields", ())).values()
    return [
        name
        for name, present in (
            (KEY_ORDER, keys != sorted(keys)),
            (NO_SERIALIZE_TYPE, "serializeTypeCurrentRPC" not in keys),
            (NUMBERS, any(not isinstance(value, str) for value in values)),
            (LINE_FEED, header.endswith(b"\n")),
        )
        if present
    ]


def _pairs(header: bytes) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = json.loads(header, object_pairs_hook=list)
    return pairs


@pytest.mark.parametrize(
    ("sender", "expected"),
    [
        ("cpp-rocketmq-0.4.4", {NO_SERIALIZE_TYPE: 49, LINE_FEED: 49, NUMBERS: 34}),
        ("go-client-2.1.2", {NO_SERIALIZE_TYPE: 41, KEY_ORDER: 41}),
        ("node-ali-ons-3.12.0", {NO_SERIALIZE_TYPE: 50, KEY_ORDER: 50, NUMBERS: 32}),
    ],
)
def test_what_keeps_the_frames_of_other_clients_from_the_same_bytes(sender: str, expected: dict[str, int]):
    assert Counter(name for frame in of_sender(sender) for name in peculiarities(frame)) == expected


@pytest.mark.parametrize("sender", FOREIGN)
def test_frames_of_other_clients_keep_their_meaning_when_encoded_back(sender: str):
    for frame in of_sender(sender):
        again = decode_frame(memoryview(reencoded(frame))[4:])
        assert again == frame.command()
        assert bytes(again.body) == frame.body()
        assert peculiarities(frame._replace(data=reencoded(frame))) == []


@pytest.mark.parametrize("serialize_type", [SERIALIZE_JSON, SERIALIZE_ROCKETMQ])
@given(command=commands)
def test_any_command_survives_either_encoding(serialize_type: int, command: Command):
    frame = encode_frame(command, serialize_type)
    command.serialize_type = "ROCKETMQ" if serialize_type else "JSON"

    assert LENGTH.unpack_from(frame)[0] == len(frame) - 4
    assert decode_frame(memoryview(frame)[4:]) == command


def test_each_kind_of_frame_cut_at_each_byte_is_rejected():
    for frame in samples():
        whole = memoryview(frame.data)[4:]
        for end in range(4 + len(frame.header())):
            with pytest.raises(RemoteProtocolError):
                decode_frame(whole[:end])


def test_each_kind_of_header_cut_at_each_byte_is_rejected():
    for frame in samples():
        header = frame.header().rstrip()
        for end in range(len(header)):
            mark = (int(frame.binary) << 24 | end).to_bytes(4, "big")
            with pytest.raises(RemoteProtocolError):
                decode_frame(memoryview(mark + header[:end]))


@given(st.binary(max_size=200), st.sampled_from([0, 1]))
def test_noise_is_rejected_as_a_fault_of_the_peer(noise: bytes, serialize_type: int):
    mark = (serialize_type << 24 | len(noise)).to_bytes(4, "big")
    with suppress(RemoteProtocolError):
        decode_frame(memoryview(mark + noise))


@given(st.data())
def test_a_damaged_frame_is_decoded_or_refused_as_a_fault_of_the_peer(data: st.DataObject):
    frame = data.draw(st.sampled_from(samples()))
    damaged = bytearray(frame.data[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, min(len(damaged), 400) - 1))] = data.draw(st.integers(0, 255))
    with suppress(RemoteProtocolError):
        decode_frame(memoryview(damaged))


@pytest.mark.parametrize("length", [3, 0, -1, -(2**31)])
def test_a_length_without_room_for_the_mark_is_rejected(length: int):
    with pytest.raises(RemoteProtocolError, match=f"frame length {length} is below the minimum of 4"):
        check_length(length)


def test_a_length_over_the_limit_is_rejected_and_the_limit_named():
    check_length(FRAME_MAX_LENGTH)
    with pytest.raises(RemoteProtocolError, match="16777217 exceeds the limit of 16777216"):
        check_length(FRAME_MAX_LENGTH + 1)
    with pytest.raises(RemoteProtocolError, match="101 exceeds the limit of 100"):
        check_length(101, 100)


def test_a_header_longer_than_its_frame_is_rejected():
    with pytest.raises(RemoteProtocolError, match="header length 9 exceeds the 2 bytes"):
        split_frame(memoryview(b"\x00\x00\x00\x09{}"))


@pytest.mark.parametrize("encoding", [2, 127, 128, 255])
def test_an_unknown_header_encoding_is_rejected(encoding: int):
    with pytest.raises(RemoteProtocolError, match=f"header encoding {encoding} is unknown"):
        split_frame(memoryview(bytes([encoding, 0, 0, 2]) + b"{}"))


def test_split_gives_views_of_the_frame():
    frame = memoryview(b"\x01\x00\x00\x02hhbody")

    serialize_type, header, body = split_frame(frame)

    assert (serialize_type, bytes(header), bytes(body)) == (1, b"hh", b"body")
    assert header.obj is body.obj is frame.obj


def test_a_header_that_no_mark_can_describe_is_not_sent():
    with pytest.raises(LocalProtocolError, match="16777216 bytes"):
        frame_parts(b"h" * (1 << 24), b"")


@pytest.mark.parametrize(
    "first", [b"PRI ", b"GET ", b"POST", b"PUT ", b"\x16\x03\x03\x00", b"\x15\x03\x01\x00", b"HTTP"]
)
def test_another_protocol_is_named_in_place_of_a_length(first: bytes):
    with pytest.raises(RemoteProtocolError, match=r"^the peer (speaks|answers)"):
        check_length(int.from_bytes(first, "big"))
    assert other_protocol(first)


@pytest.mark.parametrize("first", [b"GETS", b"PRI*", b"\x16\x04\x01\x00", b"\x7f\xff\xff\xff"])
def test_other_lengths_are_lengths(first: bytes):
    with pytest.raises(RemoteProtocolError, match=r"^frame length"):
        check_length(int.from_bytes(first, "big"))
    assert not other_protocol(first)
