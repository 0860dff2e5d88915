from rocketbroker.codec.remoting.headers.admin import GetConsumerRunningInfoRequestHeader, UnregisterClientRequestHeader
from rocketbroker.codec.remoting.remoting_command import from_ext_fields, to_ext_fields
from tests.support.golden_frames import requests_of


def test_one_header_writes_the_client_id_in_capitals_and_the_other_does_not():
    assert to_ext_fields(UnregisterClientRequestHeader("c@1", consumer_group="G")) == {
        "clientID": "c@1",
        "consumerGroup": "G",
    }
    assert to_ext_fields(GetConsumerRunningInfoRequestHeader("G", "c@1")) == {
        "consumerGroup": "G",
        "clientId": "c@1",
        "jstackEnable": "false",
    }


def test_cpp_leaves_one_group_and_names_the_other_by_an_empty_text():
    headers = [
        from_ext_fields(frame.command().header, UnregisterClientRequestHeader)
        for frame in requests_of(35)
        if frame.sender == "cpp-rocketmq-0.4.4"
    ]

    assert {(header.producer_group, header.consumer_group) for header in headers} == {("", "CG_Cpp"), ("PG_Cpp", "")}
