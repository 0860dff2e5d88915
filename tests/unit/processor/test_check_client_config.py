import pytest

from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.check_client_config import CheckClientConfigProcessor
from tests.support.fakes import FakeConnection
from tests.support.golden_frames import requests_of


def ask(body):
    return CheckClientConfigProcessor().process(FakeConnection(), request(RequestCode.CHECK_CLIENT_CONFIG, body=body))


def test_recorded_sql_subscriptions_are_refused():
    bodies = [frame.body() for frame in requests_of(RequestCode.CHECK_CLIENT_CONFIG)]
    assert bodies
    for body in bodies:
        answer = ask(body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "The broker does not support consumer to filter message by SQL92"


@pytest.mark.parametrize("expression_type", [b"", b',"expressionType":"TAG"', b',"expressionType":null'])
def test_tags_are_served(expression_type):
    answer = ask(b'{"clientId":"c","group":"g","subscriptionData":{"topic":"T","subString":"*"%b}}' % expression_type)
    assert (answer.code, answer.header) == (0, None)


def test_nothing_to_check():
    assert ask(b"{}").code == 0


def test_wrong_body():
    with pytest.raises(BrokerResponseError):
        ask(b"x")
