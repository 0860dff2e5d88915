import pytest

from rocketbroker.broker.subscription import LONGEST_CACHED, Subscription, is_tag_type, tag_codes_of
from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.codec.remoting.bodies.heartbeat import HeartbeatData, SubscriptionData
from rocketbroker.codec.remoting.request_code import RequestCode
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
