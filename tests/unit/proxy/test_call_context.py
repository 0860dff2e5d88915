"""Metadata of calls, and the status that answers an error."""

import pytest

pytest.importorskip("google.protobuf", reason="the extra grpc is not installed")

from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, RemotingConnectError, RemotingTimeoutError
from rocketbroker.proxy.call_context import CallContext, StatusError, call_context, status_of, status_of_all
from rocketbroker.proxy.messaging_pb2 import Code, Status


def test_errors_have_a_status(caplog: pytest.LogCaptureFixture):
    assert status_of(RemotingTimeoutError("late")).code == Code.PROXY_TIMEOUT
    status = status_of(RemotingConnectError("away"))
    assert (status.code, status.message) == (Code.INTERNAL_SERVER_ERROR, "RemotingConnectError: away")
    assert caplog.messages == [], "a broker that is away is no error of the proxy"

    status = status_of(ValueError("wrong"))
    assert (status.code, status.message) == (Code.INTERNAL_SERVER_ERROR, "ValueError: wrong")
    assert caplog.messages == ["a call failed"]


def test_a_context_has_the_metadata():
    metadata = {
        "x-mq-client-id": "a@1",
        "x-mq-language": "GO",
        "x-mq-client-version": "5.1.3",
        "x-mq-namespace": "n",
    }

    assert call_context(metadata, "127.0.0.1:1", 103.0) == CallContext("a@1", "GO", "5.1.3", "n", "127.0.0.1:1", 103.0)
    assert call_context({"x-mq-client-id": "a"}, "", None) == CallContext("a", "", "", "", "", None)


def test_a_client_must_name_itself():
    with pytest.raises(StatusError, match="x-mq-client-id") as raised:
        call_context({}, "127.0.0.1:1", 100.0)

    assert raised.value.code == Code.CLIENT_ID_REQUIRED


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ResponseCode.SYSTEM_BUSY, Code.TOO_MANY_REQUESTS),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, Code.ILLEGAL_FILTER_EXPRESSION),
        (ResponseCode.FLUSH_DISK_TIMEOUT, Code.MASTER_PERSISTENCE_TIMEOUT),
        (ResponseCode.MESSAGE_ILLEGAL, Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_a_brokers_answer_has_a_status(answer: ResponseCode, code: Code):
    status = status_of(BrokerResponseError(answer, "why"))

    assert (status.code, status.message) == (code, "why")


@pytest.mark.parametrize(
    ("codes", "code"), [([Code.OK, Code.OK], Code.OK), ([Code.OK, Code.FORBIDDEN], Code.MULTIPLE_RESULTS)]
)
def test_several_results_have_one_status(codes: list[Code], code: Code):
    assert status_of_all([Status(code=each) for each in codes]).code == code
