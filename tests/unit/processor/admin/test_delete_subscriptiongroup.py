import pytest

from rocketbroker.codec.remoting.headers.admin import DeleteSubscriptionGroupRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.delete_subscriptiongroup import DeleteSubscriptionGroupProcessor
from tests.support.processor_calls import call_async, recorded, refusal_async


@pytest.fixture
def processor(parts):
    parts.subscription_groups.find("G")
    parts.offsets.commit("G", "T", 0, 5)
    parts.offsets.commit("Other", "T", 0, 6)
    parts.stats.group_get("T", "G").add(1, 10)
    return DeleteSubscriptionGroupProcessor(parts.subscription_groups, parts.offsets, parts.stats)


@pytest.mark.parametrize(("clean", "left"), [(True, -1), (False, 5)])
async def test_offsets_go_only_when_asked(parts, processor, clean, left):
    assert await call_async(processor.process, DeleteSubscriptionGroupRequestHeader("G", clean)) == (0, None, {}, b"")
    assert not parts.subscription_groups.contains("G")
    assert parts.offsets.query("G", "T", 0) == left
    assert parts.offsets.query("Other", "T", 0) == 6
    assert parts.stats.view("GROUP_GET_NUMS", "T@G") is None


async def test_recorded_request(processor):
    ((command, theirs),) = recorded(207, DeleteSubscriptionGroupRequestHeader)
    assert await call_async(processor.process, command.header) == theirs
    assert command.header.clean_offset


@pytest.mark.parametrize("group", ["../up", "", "g" * 256])
async def test_bad_names_are_named(processor, group):
    code, remark = await refusal_async(processor.process, DeleteSubscriptionGroupRequestHeader(group, True))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "The specified group" in remark
