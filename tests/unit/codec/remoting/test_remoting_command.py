from enum import Enum, IntEnum

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.java_types import Int, Long
from rocketbroker.codec.remoting.remoting_command import (
    CURRENT_VERSION,
    CommandCustomHeader,
    from_ext_fields,
    request,
    response,
    text_of,
    to_ext_fields,
)
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import CodecError


def test_a_request_carries_a_plain_number_as_code():
    command = request(RequestCode.HEART_BEAT, body=b"{}")

    assert type(command.code) is int
    assert (command.code, command.flag, command.body, command.header) == (34, 0, b"{}", None)
    assert not command.is_response
    assert not command.is_oneway


def test_a_oneway_request_is_marked():
    command = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "G"}, oneway=True)

    assert command.flag == 2
    assert command.is_oneway
    assert not command.is_response


def test_a_response_is_marked_and_names_its_cause():
    command = response(ResponseCode.TOPIC_NOT_EXIST, "no such topic")

    assert type(command.code) is int
    assert (command.code, command.flag, command.remark) == (17, 1, "no such topic")
    assert command.is_response


def test_a_response_without_arguments_is_success_of_this_version():
    command = response()

    assert (command.code, command.remark, command.body) == (0, None, b"")
    assert command.version == CURRENT_VERSION == 513
    assert command.language == "JAVA"


class Boundary(Enum):
    LOWER = 7


class State(IntEnum):
    COMMITTED = 8


class SomeRequestHeader(CommandCustomHeader):
    queue_id: Int
    queue_offset: Long
    client_id: str = msgspec.field(name="clientID")
    unit_mode: bool = False
    last_key: str | None = None


TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
headers = st.builds(
    SomeRequestHeader,
    queue_id=st.integers(-(2**31), 2**31 - 1),
    queue_offset=st.integers(-(2**63), 2**63 - 1),
    client_id=TEXT,
    unit_mode=st.booleans(),
    last_key=st.none() | TEXT.filter(lambda text: text.lower() != "null"),
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (Boundary.LOWER, "LOWER"),
        (State.COMMITTED, "8"),
        (-5, "-5"),
        ("t", "t"),
        (1.5, "1.5"),
    ],
)
def test_scalars_are_written_as_java_writes_them(value: object, text: str):
    assert text_of(value) == text


def test_fields_have_their_wire_names_and_none_is_left_out():
    header = SomeRequestHeader(3, -1, "c@1")

    assert to_ext_fields(header) == {"queueId": "3", "queueOffset": "-1", "clientID": "c@1", "unitMode": "false"}


def test_a_mapping_is_a_header_as_well():
    assert to_ext_fields({"IS_SUB_CHANGE": True, "n": 4, "nothing": None}) == {"IS_SUB_CHANGE": "true", "n": "4"}
    assert to_ext_fields({}) == {}
    assert to_ext_fields(None) is None


@given(headers)
def test_a_header_survives_its_texts(header: SomeRequestHeader):
    assert from_ext_fields(to_ext_fields(header), SomeRequestHeader) == header


@pytest.mark.parametrize(
    ("value", "meant"), [("1", True), ("0", False), ("true", True), ("false", False), (True, True), (0, False)]
)
def test_booleans_are_read_in_each_way_that_clients_write_them(value: object, meant: bool):
    fields = {"queueId": 1, "queueOffset": "2", "clientID": "c", "unitMode": value}

    assert from_ext_fields(fields, SomeRequestHeader).unit_mode is meant


def test_fields_nobody_knows_are_skipped():
    fields = {"queueId": "1", "queueOffset": "2", "clientID": "c", "AccessKey": "", "bname": "broker-a"}

    assert from_ext_fields(fields, SomeRequestHeader) == SomeRequestHeader(1, 2, "c")


@pytest.mark.parametrize("fields", [None, {}, {"queueId": "1", "queueOffset": "2"}])
def test_a_missing_field_is_named(fields: dict[str, str] | None):
    missing = "clientID" if fields else "queueId"
    with pytest.raises(CodecError, match=f"the custom field <{missing}> is missing"):
        from_ext_fields(fields, SomeRequestHeader)


@pytest.mark.parametrize("value", ["", "x", "1.5", "2147483648", "-2147483649", "9" * 400])
def test_an_invalid_number_is_named_with_its_value(value: str):
    fields = {"queueId": value, "queueOffset": "2", "clientID": "c"}
    with pytest.raises(CodecError) as caught:
        from_ext_fields(fields, SomeRequestHeader)

    assert str(caught.value).startswith(f"the custom field <queueId> has the value {value[:64]!r}: Expected `int")
    assert len(str(caught.value)) < 200
