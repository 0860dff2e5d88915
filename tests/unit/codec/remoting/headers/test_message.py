import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.headers.message import (
    GetMaxOffsetRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryMessageRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import from_ext_fields, to_ext_fields
from rocketbroker.common.errors import CodecError
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


def pulls_of(sender: str) -> list[PullMessageRequestHeader]:
    found = [frame.command().header for frame in requests_of(11) if frame.sender == sender]
    return [from_ext_fields(fields, PullMessageRequestHeader) for fields in found]


def test_go_relies_on_the_subscription_of_its_heartbeat():
    found = {
        (header.subscription, header.expression_type, header.sub_version) for header in pulls_of("go-client-2.1.2")
    }

    assert found == {("", "TAG", 0)}


def test_cpp_sends_its_subscription_with_each_pull():
    headers = pulls_of("cpp-rocketmq-0.4.4")

    assert {header.sys_flag & 4 for header in headers} == {4}
    assert {(header.subscription, header.expression_type) for header in headers} == {("TagA", None), ("*", None)}


def test_a_negative_commit_offset_means_no_commit():
    assert -1 in {header.commit_offset for header in pulls_of("java-json")}


@pytest.mark.parametrize("name", ["commitOffset", "suspendTimeoutMillis", "subVersion", "maxMsgNums", "sysFlag"])
def test_what_each_pull_must_say(name: str):
    fields = dict(requests_of(11)[0].command().header)
    del fields[name]

    with pytest.raises(CodecError, match=f"<{name}> is missing"):
        from_ext_fields(fields, PullMessageRequestHeader)


def test_an_answer_names_only_what_is_set():
    header = PullMessageResponseHeader(0, 5, 0, 9, topic_sys_flag=0)

    assert to_ext_fields(header) == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "5",
        "minOffset": "0",
        "maxOffset": "9",
        "topicSysFlag": "0",
    }


def test_recorded_clients_say_twice_whether_the_key_is_unique():
    headers = [from_ext_fields(frame.command().header, QueryMessageRequestHeader) for frame in requests_of(12)]

    assert {(header.index_type, header.unique_key_query) for header in headers} == {("K", False), ("U", True)}
    assert all(header.end_timestamp <= 2**63 - 1 for header in headers)


def test_older_clients_say_it_by_the_flag_or_not_at_all():
    fields = {"topic": "T", "key": "k", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "9223372036854775807"}

    assert from_ext_fields(fields, QueryMessageRequestHeader).unique_key_query is False
    assert from_ext_fields(fields | {"_UNIQUE_KEY_QUERY": "true"}, QueryMessageRequestHeader).unique_key_query is True


QUEUE = {"topic": "T", "queueId": "1"}


@pytest.mark.parametrize(("sent", "meant"), [({}, None), ({"setZeroIfNotFound": "false"}, False)])
def test_not_saying_whether_zero_will_do_differs_from_forbidding_it(sent: dict[str, str], meant: bool | None):
    header = from_ext_fields({"consumerGroup": "G"} | QUEUE | sent, QueryConsumerOffsetRequestHeader)

    assert header.set_zero_if_not_found is meant


def test_go_commits_minus_one():
    fields = {"consumerGroup": "G", "commitOffset": "-1"} | QUEUE

    assert from_ext_fields(fields, UpdateConsumerOffsetRequestHeader).commit_offset == -1


def test_the_maximum_is_of_committed_messages_unless_said_otherwise():
    assert from_ext_fields(QUEUE, GetMaxOffsetRequestHeader).committed is True
    assert from_ext_fields(QUEUE | {"committed": "false"}, GetMaxOffsetRequestHeader).committed is False


def test_old_clients_search_without_a_boundary():
    assert from_ext_fields(QUEUE | {"timestamp": "5"}, SearchOffsetRequestHeader).boundary_type is None


def test_a_reset_is_of_all_queues_unless_one_is_named():
    fields = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"}

    assert from_ext_fields(fields, ResetOffsetRequestHeader) == ResetOffsetRequestHeader("G", "T", -1, True)
    assert from_ext_fields(fields, ResetOffsetRequestHeader).queue_id == -1
