import pytest

from rocketbroker.codec.remoting.headers.admin import QuerySubscriptionByConsumerRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.query_subscription_by_consumer import QuerySubscriptionByConsumerProcessor
from tests.support.processor_calls import call, recorded, refusal


@pytest.fixture
def processor(parts):
    return QuerySubscriptionByConsumerProcessor(parts.consumers)


def test_recorded_requests(parts, consumer, processor):
    online = 0
    for command, theirs in recorded(345, QuerySubscriptionByConsumerRequestHeader):
        parts.consumers.groups.clear()
        if "subscriptionData" in theirs.body:
            consumer("CG_Live", "client", "GoldenTopic")
            theirs.body["subscriptionData"]["subVersion"] = 1795256109612
            online += 1
        assert call(processor.process, command.header) == theirs
    assert online == 2


def test_without_a_topic(processor):
    answer = call(processor.process, QuerySubscriptionByConsumerRequestHeader("G"))
    assert answer == (0, None, {}, {"group": "G"})


@pytest.mark.parametrize(("group", "topic"), [("../up", "T"), ("G", "../up"), ("", "T"), ("G", "")])
def test_bad_names_are_named(processor, group, topic):
    code, remark = refusal(processor.process, QuerySubscriptionByConsumerRequestHeader(group, topic))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "; use " in remark or "The specified group" in remark
