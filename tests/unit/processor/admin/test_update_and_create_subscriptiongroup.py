import msgspec
import pytest

from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, SubscriptionGroupList
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.update_and_create_subscriptiongroup import UpdateAndCreateSubscriptionGroupProcessor
from tests.support.processor_calls import call, recorded, refusal


@pytest.fixture
def processor(parts):
    return UpdateAndCreateSubscriptionGroupProcessor(parts.subscription_groups)


def test_recorded_group(parts, processor):
    ((command, theirs),) = recorded(200)
    assert call(processor.process, body=command.body) == theirs
    made = parts.subscription_groups.groups["CG_Adm"]
    assert made == SubscriptionGroupConfig.decode(command.body)
    assert made.retry_max_times == 5


def test_recorded_list(parts, processor):
    ((command, theirs),) = recorded(225)
    assert call(processor.process_list, body=command.body) == theirs
    wanted = SubscriptionGroupList.decode(command.body).group_config_list
    assert [parts.subscription_groups.groups[group.group_name] for group in wanted] == wanted
    assert len(wanted) == 2


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"group_name": "../up"}, ResponseCode.INVALID_PARAMETER, "The specified group: ../up"),
        ({"group_name": ""}, ResponseCode.INVALID_PARAMETER, "The specified group is blank."),
        ({"group_name": "g" * 121}, ResponseCode.INVALID_PARAMETER, "longer than group max length"),
        ({"retry_queue_nums": -1}, ResponseCode.INVALID_PARAMETER, "retryQueueNums -1 of group G"),
        ({"retry_queue_nums": 2**31 - 1}, ResponseCode.INVALID_PARAMETER, "use 0 to 16384"),
        ({"attributes": {"+x": "1"}}, ResponseCode.SYSTEM_ERROR, "unsupported key: +x"),
    ],
)
def test_bad_groups_are_named_and_change_nothing(parts, processor, fields, code, named):
    before = dict(parts.subscription_groups.groups)
    group = msgspec.structs.replace(SubscriptionGroupConfig("G"), **fields)
    for process, body in (
        (processor.process, group),
        (processor.process_list, SubscriptionGroupList([SubscriptionGroupConfig("Good"), group])),
    ):
        found_code, remark = refusal(process, body=body.encode())
        assert found_code == code
        assert named in remark
    assert parts.subscription_groups.groups == before


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"retryMaxTimes":"many"}'])
def test_bad_bodies_are_named(processor, body):
    code, remark = refusal(processor.process, body=body)
    assert code == ResponseCode.SYSTEM_ERROR
    assert "the body of the request" in remark
