import pytest

from rocketbroker.broker.client.subscription import (
    LONGEST_CACHED,
    Subscription,
    SubscriptionLimit,
    is_tag_type,
    tag_codes_of,
)
from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.codec.remoting.bodies.heartbeat import HeartbeatData, SubscriptionData
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from tests.support.golden_frames import FOREIGN, requests_of


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("*", None),
        (" * ", None),
        ("", None),
        ("||", None),
        ("TagA", {"TagA"}),
        ("TagA||TagB", {"TagA", "TagB"}),
        (" TagA || || Täg ", {"TagA", "Täg"}),
        ("a" * (LONGEST_CACHED + 1), {"a" * (LONGEST_CACHED + 1)}),
    ],
)
def test_tag_codes_of(expression, tags):
    assert tag_codes_of(expression) == (None if tags is None else {tags_code(tag) for tag in tags})


def test_code_set_of_the_client_is_not_trusted():
    data = SubscriptionData("T", "TagA", 1, ["TagA"], [0])
    assert Subscription(data).tag_codes == frozenset({tags_code("TagA")})


def test_tags_without_an_expression():
    assert Subscription(SubscriptionData("T", "", 1, ["TagA", "TagB"])).tag_codes == frozenset(
        {
            tags_code("TagA"),
            tags_code("TagB"),
        }
    )


def test_sql_is_no_tag_expression():
    found = Subscription(SubscriptionData("T", "color = 'red'", 1, expression_type="SQL92"))
    assert not found.is_tag
    assert found.tag_codes is None
    assert is_tag_type(None)
    assert is_tag_type("")


def test_recorded_java_subscriptions_have_the_same_codes():
    seen = 0
    for frame in requests_of(RequestCode.HEART_BEAT):
        if frame.client in FOREIGN:
            continue
        for consumer in HeartbeatData.decode(frame.body()).consumer_data_set:
            for data in consumer.subscription_data_set:
                subscription = Subscription(data)
                if subscription.is_tag:
                    assert (subscription.tag_codes or frozenset()) == set(data.code_set)
                    seen += bool(data.code_set)
    assert seen


@pytest.mark.parametrize(
    ("data", "remark"),
    [
        (
            SubscriptionData("T", "a" * 16_385),
            "maxSubscriptionLength: a subscription of 16,388 characters exceeds the limit of 16,384; shorten it or",
        ),
        (
            SubscriptionData("T", "a||" * 1024),
            "maxSubscriptionTags: a subscription of 1,025 tags exceeds the limit of 1,024; shorten it or raise",
        ),
        (SubscriptionData("T", "n = 1", expression_type="x" * 16_384), "maxSubscriptionLength: "),
        (SubscriptionData("T", tags_set=["a" * 8_193] * 2), "maxSubscriptionLength: "),
        (SubscriptionData("T", tags_set=["a"] * 1_025), "maxSubscriptionTags: "),
        (SubscriptionData("T", code_set=[1] * 1_025), "maxSubscriptionTags: "),
    ],
)
def test_a_subscription_that_is_too_long_is_rejected(data, remark):
    with pytest.raises(BrokerResponseError) as error:
        SubscriptionLimit(BrokerConfig()).check_data(data)
    assert error.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert error.value.remark.startswith(remark)


def test_a_subscription_of_the_longest_length_passes():
    limit = SubscriptionLimit(BrokerConfig())
    limit.check_data(SubscriptionData("T", "a" * 16_381, tags_set=["a"] * 1_024, code_set=[1] * 1_024))
    limit.check("||".join(["tag"] * 1_024))
