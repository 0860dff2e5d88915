import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.remoting.custom_header import from_ext_fields, to_ext_fields
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.headers.send_message import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from tests.support.golden_frames import GoldenFrame, requests_of

TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
INT = st.integers(-(2**31), 2**31 - 1)
VALUES = {
    "producer_group": TEXT,
    "topic": TEXT,
    "default_topic": TEXT,
    "default_topic_queue_nums": INT,
    "queue_id": INT,
    "sys_flag": INT,
    "born_timestamp": st.integers(-(2**63), 2**63 - 1),
    "flag": INT,
    "properties": TEXT,
    "reconsume_times": INT,
    "unit_mode": st.booleans(),
    "batch": st.booleans(),
    "max_reconsume_times": st.none() | INT,
    "broker_name": st.none() | TEXT.filter(lambda text: text.lower() != "null"),
}


def decoded(frame: GoldenFrame) -> SendMessageRequestHeader:
    kind = SendMessageRequestHeader if frame.code in (10, 324) else SendMessageRequestHeaderV2
    command = Route(frame.code, lambda connection, command: b"", kind).decode(
        int(frame.binary), memoryview(frame.header())
    )
    header: SendMessageRequestHeader = command.header
    return header


def sent_by(sender: str, code: int) -> list[SendMessageRequestHeader]:
    return [decoded(frame) for frame in requests_of(code) if frame.sender == sender]


def test_one_handler_can_serve_both_versions():
    assert SendMessageRequestHeader.__struct_fields__ == SendMessageRequestHeaderV2.__struct_fields__
    assert SendMessageRequestHeader.__struct_defaults__ == SendMessageRequestHeaderV2.__struct_defaults__
    assert set(VALUES) == set(SendMessageRequestHeader.__struct_fields__)


@given(st.fixed_dictionaries(VALUES))
def test_both_versions_carry_the_same_values(values: dict):
    first = SendMessageRequestHeader(**values)
    second = SendMessageRequestHeaderV2(**values)

    assert from_ext_fields(to_ext_fields(first), SendMessageRequestHeader) == first
    assert from_ext_fields(to_ext_fields(second), SendMessageRequestHeaderV2) == second
    assert list((to_ext_fields(first) or {}).values()) == list((to_ext_fields(second) or {}).values())


def test_the_short_names_are_those_of_java():
    short = SendMessageRequestHeaderV2.__struct_encode_fields__
    names = dict(zip(short, SendMessageRequestHeader.__struct_encode_fields__, strict=True))

    assert names == {
        "a": "producerGroup",
        "b": "topic",
        "c": "defaultTopic",
        "d": "defaultTopicQueueNums",
        "e": "queueId",
        "f": "sysFlag",
        "g": "bornTimestamp",
        "h": "flag",
        "i": "properties",
        "j": "reconsumeTimes",
        "k": "unitMode",
        "l": "maxReconsumeTimes",
        "m": "batch",
        "n": "bname",
    }


def test_the_cpp_client_sends_numbers_and_booleans_as_zero_and_one():
    headers = sent_by("cpp-rocketmq-0.4.4", 10)

    assert len(headers) == 6
    assert all(
        (header.batch, header.unit_mode, header.max_reconsume_times) == (False, False, None) for header in headers
    )
    assert {header.default_topic_queue_nums for header in headers} == {4}


def test_the_node_client_sends_numbers_and_leaves_out_what_it_can():
    headers = sent_by("node-ali-ons-3.12.0", 310)

    assert {(header.topic, header.unit_mode, header.batch, header.broker_name) for header in headers} == {
        ("GoldenTopic", False, False, None)
    }


def test_the_go_client_batches_with_the_short_names_and_without_properties():
    (header,) = sent_by("go-client-2.1.2", 320)

    assert (header.batch, header.properties, header.max_reconsume_times) == (True, "", 0)


def test_an_answer_leaves_out_what_it_does_not_know():
    assert to_ext_fields(SendMessageResponseHeader("7F", 1, 2)) == {"msgId": "7F", "queueId": "1", "queueOffset": "2"}


def test_requests_are_not_tracked_by_the_garbage_collector():
    assert not SendMessageRequestHeader.__struct_config__.gc
    assert not SendMessageRequestHeaderV2.__struct_config__.gc
    assert msgspec.structs.fields(SendMessageRequestHeader)[0].required
