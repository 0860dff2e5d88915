import pytest

from rocketbroker.codec.remoting.custom_header import from_ext_fields, to_ext_fields
from rocketbroker.codec.remoting.headers.pull_message import PullMessageRequestHeader, PullMessageResponseHeader
from rocketbroker.common.errors import CodecError
from tests.support.golden_frames import requests_of


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
