import gzip
import json
from collections import Counter
from contextlib import suppress
from struct import pack
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.remoting.frame import (
    FRAME_MAX_LENGTH,
    LANGUAGE_CODES,
    LANGUAGES,
    LENGTH,
    OTHER,
    SERIALIZE_JSON,
    SERIALIZE_ROCKETMQ,
    HeaderFieldError,
    TypedJsonDecoder,
    check_length,
    decode_frame,
    decode_json_header,
    decode_rocketmq_header,
    encode_frame,
    encode_json_header,
    encode_rocketmq_header,
    other_protocol,
    split_frame,
)
from rocketbroker.codec.remoting.headers.message import GetMaxOffsetRequestHeader, QueryConsumerOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request, response
from rocketbroker.common.errors import LocalProtocolError, RemoteProtocolError
from tests.support.golden_frames import FOREIGN, GOLDEN, GoldenFrame, frames, samples

DEEP = b"[" * 1_000_000 + b"]" * 1_000_000


def decode(text: bytes):
    return decode_json_header(memoryview(text))


def test_keys_are_written_in_the_order_of_the_alphabet():
    command = response(22, "Not found", {"b": "2", "a": "1"})
    command.opaque = 181

    assert encode_json_header(command) == (
        b'{"code":22,"extFields":{"b":"2","a":"1"},"flag":1,"language":"JAVA","opaque":181,"remark":"Not found",'
        b'"serializeTypeCurrentRPC":"JSON","version":513}'
    )


def test_a_header_of_nulls_is_an_empty_object_and_no_header_is_left_out():
    assert b'"extFields":{},' in encode_json_header(request(11, {"nothing": None}))
    assert b"extFields" not in encode_json_header(request(11))


def test_the_separators_of_properties_are_escaped_and_other_text_is_raw():
    encoded = encode_json_header(request(10, {"properties": "KEYS\x01a\x02", "topic": "日本\u2028"}))

    assert b"KEYS\\u0001a\\u0002" in encoded
    assert "日本\u2028".encode() in encoded


def test_order_blanks_and_a_line_feed_do_not_matter():
    command = decode(b' { "opaque" : 3 , "extFields" : { "queueId" : 0 } , "code" : 14 }\n')

    assert (command.code, command.opaque, command.header) == (14, 3, {"queueId": "0"})


def test_values_of_any_scalar_kind_become_texts_and_nulls_vanish():
    assert decode(b'{"code":1,"extFields":{"a":true,"b":-5,"c":null,"d":"x","e":1.5}}').header == {
        "a": "true",
        "b": "-5",
        "d": "x",
        "e": "1.5",
    }


def test_what_is_left_out_has_defaults():
    command = decode(b'{"code":34,"extFields":null,"remark":null}')

    assert (command.header, command.remark, command.flag, command.opaque, command.body) == (None, None, 0, 0, b"")


BROKEN = {
    b"": "truncated",
    b"null": "Expected `object`, got `null`",
    b"[]": "Expected `object`, got `array`",
    b"{}": "missing required field `code`",
    b'{"code":"x"}': "Expected `int`, got `str`",
    b'{"code":1e400}': "out of range",
    b'{"code":1,"opaque":2147483648}': "Expected `int` <= 2147483647",
    b'{"code":1,"flag":-2147483649}': "Expected `int` >= -2147483648",
    b'{"code":1,"extFields":[]}': "Expected `object | null`, got `array`",
    b'{"code":1,"extFields":{"a":{}}}': "got `object`",
    b'{"code":1,"language":5}': "Expected `str`, got `int`",
    b'{"code":1} x': "trailing characters",
    b"\xef\xbb\xbf{}": "malformed",
    b'{"code":1,"remark":"\xff"}': "not UTF-8",
    b'{"code":1,"remark":"\\ud800"}': "JSON header",
    b'{"code":1,"x":' + DEEP + b"}": "nested too deep",
    b'{"code":1,"extFields":{"a":' + DEEP + b"}}": "got `array`",
}


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:32].decode("latin-1"))
def test_a_broken_header_is_rejected_and_the_fault_named(text: bytes):
    with pytest.raises(RemoteProtocolError, match="JSON header") as caught:
        decode(text)

    assert BROKEN[text] in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", [b"", b"{}", b"7", b'{"code":[]}', b'{"code":1,"x":' + DEEP + b"}", b'{"code":1'])
def test_the_code_of_a_broken_header_is_not_read(text: bytes):
    with pytest.raises(RemoteProtocolError, match="JSON header"):
        decode(text)


def test_the_code_is_found_wherever_it_stands():
    assert decode(b'{"extFields":{"code":"7"},"remark":"","code":310}\n').code == 310


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_noise_around_the_code_is_skipped_or_refused(before: bytes, after: bytes):
    with suppress(RemoteProtocolError):
        assert decode(b'{"%b":"%b","code":7}' % (before, after)).code == 7


class TestTypedJsonDecoder:
    decode = staticmethod(TypedJsonDecoder(QueryConsumerOffsetRequestHeader))

    def test_texts_become_the_types_of_the_header(self):
        command = self.decode(
            memoryview(
                b'{"code":14,"extFields":{"queueId":"2","topic":"T","consumerGroup":"G","bname":"b"},"opaque":9}'
            )
        )

        assert command.opaque == 9
        assert command.header == QueryConsumerOffsetRequestHeader("G", "T", 2)

    def test_numbers_for_texts_and_nulls_are_read_as_well(self):
        command = self.decode(
            memoryview(
                b'{"code":14,"extFields":{"queueId":2,"topic":5,"consumerGroup":true,"setZeroIfNotFound":null,"x":[]}}'.replace(
                    b',"x":[]', b""
                )
            )
        )

        assert command.header == QueryConsumerOffsetRequestHeader("true", "5", 2)

    @pytest.mark.parametrize("fields", [b"", b',"extFields":{}', b',"extFields":null'])
    def test_a_missing_field_comes_with_the_command_that_lacks_it(self, fields: bytes):
        with pytest.raises(HeaderFieldError, match="<consumerGroup> is missing") as caught:
            self.decode(memoryview(b'{"code":14%b,"opaque":77}' % fields))

        assert (caught.value.command.code, caught.value.command.opaque) == (14, 77)

    def test_a_mistyped_field_comes_with_the_command_and_what_was_found(self):
        with pytest.raises(HeaderFieldError, match="<queueId> has the value 'two': Expected `int`") as caught:
            self.decode(
                memoryview(b'{"code":14,"extFields":{"queueId":"two","topic":"T","consumerGroup":"G"},"opaque":78}')
            )

        assert caught.value.command.opaque == 78

    @pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:32].decode("latin-1"))
    def test_an_invalid_header_is_rejected_in_the_same_words(self, text: bytes):
        with pytest.raises(RemoteProtocolError) as caught:
            self.decode(memoryview(text))

        assert BROKEN[text] in str(caught.value)

    @pytest.mark.parametrize("fields", [b"", b',"extFields":null', b',"extFields":{}'])
    def test_a_header_without_required_fields_need_not_be_sent(self, fields: bytes):
        class NoFields(GetMaxOffsetRequestHeader):
            topic: str = "default"
            queue_id: int = 0

        command = TypedJsonDecoder(NoFields)(memoryview(b'{"code":30%b}' % fields))

        assert command.header == NoFields()


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"))))
def test_written_tables_are_standard_json(fields: dict[str, str]):
    encoded = encode_json_header(RemotingCommand(5, fields))

    assert msgspec.json.decode(encoded)["extFields"] == fields
    assert decode(encoded).header == fields


def language_of(code: int) -> str:
    header = pack(">hbhiii", 310, code, 513, 7, 0, 0) + pack(">i", 0)
    return decode_rocketmq_header(memoryview(header)).language


def test_names_and_codes_lead_to_each_other():
    assert [language_of(code) for code in range(len(LANGUAGES))] == list(LANGUAGES)
    assert all(LANGUAGE_CODES[name] == code for code, name in enumerate(LANGUAGES))


@pytest.mark.parametrize(("name", "code"), [("JAVA", 0), ("CPP", 1), ("GO", 9), ("RUST", 12), ("NODE_JS", 13)])
def test_codes_are_those_of_java(name: str, code: int):
    assert LANGUAGE_CODES[name] == code


@pytest.mark.parametrize("code", [-1, len(LANGUAGES), 127])
def test_an_unknown_code_is_another_language(code: int):
    assert language_of(code) == "OTHER"
    assert LANGUAGES[OTHER] == "OTHER"


def test_each_recorded_language_is_known():
    assert {frame.command().language for frame in frames()} == {"JAVA", "CPP", "GO"}


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
    with pytest.raises(LocalProtocolError, match=r"header of 16777[0-9]{3} bytes exceeds the limit of 16777215"):
        encode_frame(request(1, {"h": "h" * (1 << 24)}))


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
