from rocketbroker.codec.remoting.remoting_command import CURRENT_VERSION, request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode


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
