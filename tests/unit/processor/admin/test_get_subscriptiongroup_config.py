import pytest

from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.remoting.headers.admin import GetSubscriptionGroupConfigRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.processor.admin.get_subscriptiongroup_config import GetSubscriptionGroupConfigProcessor
from tests.support.processor_calls import call, recorded, refusal


def test_recorded_requests(parts):
    processor = GetSubscriptionGroupConfigProcessor(parts.subscription_groups)
    seen = [
        call(processor.process, command.header) == theirs
        for command, theirs in recorded(352, GetSubscriptionGroupConfigRequestHeader)
    ]
    assert seen == [True] * 3


def test_unknown_group_without_auto_creation(parts, tmp_path):
    config = BrokerConfig(auto_create_subscription_group=False)
    groups = SubscriptionGroupManager(tmp_path / "groups.json", config, parts.clock)
    header = GetSubscriptionGroupConfigRequestHeader("Nope")
    answer = call(GetSubscriptionGroupConfigProcessor(groups).process, header)
    assert answer == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker", {}, b"")


@pytest.mark.parametrize("group", ["../up", "", "a b"])
def test_bad_names_make_no_group(parts, group):
    processor = GetSubscriptionGroupConfigProcessor(parts.subscription_groups)
    code, remark = refusal(processor.process, GetSubscriptionGroupConfigRequestHeader(group))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "The specified group" in remark
    assert not parts.subscription_groups.contains(group)
