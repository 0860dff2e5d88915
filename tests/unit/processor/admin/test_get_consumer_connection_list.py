import pytest

from rocketbroker.codec.remoting.headers.admin import GetConsumerConnectionListRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.get_consumer_connection_list import GetConsumerConnectionListProcessor
from tests.support.processor_calls import call_async, recorded, refusal_async


@pytest.fixture
def processor(parts, encoder):
    return GetConsumerConnectionListProcessor(parts.consumers, encoder)


async def test_recorded_groups_without_clients(processor):
    offline = 0
    for command, theirs in recorded(203, GetConsumerConnectionListRequestHeader):
        if theirs.code:
            assert await call_async(processor.process, command.header) == theirs
            offline += 1
    assert offline > 20


async def test_recorded_group_with_clients(consumer, processor):
    online = [each for each in recorded(203, GetConsumerConnectionListRequestHeader) if not each[1].code]
    command, theirs = next(each for each in online if each[0].header.consumer_group == "CG_Live")
    (client,) = theirs.body["connectionSet"]
    topics = sorted(theirs.body["subscriptionTable"])
    port = int(client["clientAddr"].rpartition(":")[2])
    consumer("CG_Live", client["clientId"], *topics, port=port, start=theirs.body["consumeFromWhere"])
    ours = await call_async(processor.process, command.header)
    for table in (ours.body["subscriptionTable"], theirs.body["subscriptionTable"]):
        for subscription in table.values():
            subscription["subVersion"] = 0
    assert ours == theirs


@pytest.mark.parametrize("group", ["../up", ""])
async def test_bad_names_are_named(processor, group):
    code, remark = await refusal_async(processor.process, GetConsumerConnectionListRequestHeader(group))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "The specified group" in remark


async def test_clients_that_disagree_are_named_in_the_remark(consumer, processor):
    header = GetConsumerConnectionListRequestHeader("CG")
    consumer("CG", "one", "T", port=50001)
    assert (await call_async(processor.process, header)).remark is None
    consumer("CG", "two", "T", "U", port=50002)
    answer = await call_async(processor.process, header)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.remark is not None
    assert "of topic U one wants nothing and two wants *" in answer.remark
    assert len(answer.body["connectionSet"]) == 2
