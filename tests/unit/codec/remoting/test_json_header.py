from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.remoting.headers.offset import GetMaxOffsetRequestHeader, QueryConsumerOffsetRequestHeader
from rocketbroker.codec.remoting.json_header import (
    HeaderFieldError,
    TypedJsonDecoder,
    decode_json_header,
    encode_json_header,
)
from rocketbroker.codec.remoting.remoting_command import RemotingCommand, request, response
from rocketbroker.common.errors import RemoteProtocolError

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
