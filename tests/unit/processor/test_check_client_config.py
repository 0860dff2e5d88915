import json

import pytest

from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.check_client_config import CheckClientConfigProcessor
from tests.support.fakes import FakeConnection
from tests.support.golden_frames import requests_of


def ask(body, *, enabled=True):
    processor = CheckClientConfigProcessor(BrokerConfig(enable_property_filter=enabled))
    return processor.process(FakeConnection(), request(RequestCode.CHECK_CLIENT_CONFIG, body=body))


def refused(body, *, enabled=True):
    with pytest.raises(BrokerResponseError) as error:
        ask(body, enabled=enabled)
    return error.value.code, error.value.remark


def sql(expression, expression_type="SQL92"):
    data = {"topic": "T", "subString": expression, "expressionType": expression_type}
    return json.dumps({"clientId": "c", "group": "g", "subscriptionData": data}).encode()


def recorded(group):
    """Bodies that Java clients sent, one with a right and one with a wrong expression."""
    bodies = [frame.body() for frame in requests_of(RequestCode.CHECK_CLIENT_CONFIG)]
    found = [body for body in bodies if json.loads(body)["group"] == group]
    assert found
    return found


def test_recorded_sql_subscriptions_are_rejected_while_properties_are_not_filtered():
    for body in recorded("CG_Sql") + recorded("CG_SqlBad"):
        code, remark = refused(body, enabled=False)
        assert code == ResponseCode.SYSTEM_ERROR
        assert remark.startswith("The broker does not support consumer to filter message by SQL92: ")
        assert remark.endswith("enablePropertyFilter is false; set it to true to enable such filters")


def test_recorded_sql_subscriptions_are_checked_while_properties_are_filtered():
    for body in recorded("CG_Sql"):
        assert ask(body).code == 0
    for body in recorded("CG_SqlBad"):
        code, remark = refused(body)
        assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert remark.startswith("Invalid MessageSelector. At character 8: '=' is not allowed here; expected ")


@pytest.mark.parametrize(
    ("expression", "remark"),
    [
        ("a LIKE 'x'", "Invalid MessageSelector. At character 3: 'LIKE' is not allowed here; expected AND, BETWEEN, "),
        ("", "Invalid MessageSelector. At character 1: the expression ends too early; expected "),
        ("(" * 1000 + "a" + ")" * 1000, "the expression is nested more than 64 levels deep, which is the limit"),
        ("a = 1 " + " " * 10_000, "the expression has 10,006 characters; the limit is 4,096"),
    ],
)
def test_a_wrong_expression_is_rejected_with_its_place(expression, remark):
    code, said = refused(sql(expression))
    assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert remark in said


def test_an_unknown_type_is_rejected():
    code, remark = refused(sql("a", "XPATH"))
    assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "the expressionType 'XPATH' is unknown; use TAG or SQL92" in remark


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("expression_type", [b"", b',"expressionType":"TAG"', b',"expressionType":null'])
def test_tags_are_served(expression_type, enabled):
    body = b'{"clientId":"c","group":"g","subscriptionData":{"topic":"T","subString":"*"%b}}' % expression_type
    answer = ask(body, enabled=enabled)
    assert (answer.code, answer.header) == (0, None)


def test_nothing_to_check():
    assert ask(b"{}").code == 0


def test_wrong_body():
    with pytest.raises(BrokerResponseError):
        ask(b"x")


@pytest.mark.parametrize("expression_type", ["TAG", "SQL92"])
def test_a_subscription_that_is_too_long_is_rejected_before_it_is_parsed(expression_type):
    code, remark = refused(sql("a" * 20_000, expression_type))
    assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert remark.startswith("maxSubscriptionLength: a subscription of 20,0")
