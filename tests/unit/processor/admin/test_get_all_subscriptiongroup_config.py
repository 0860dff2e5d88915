from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketbroker.codec.remoting.headers.admin import GetAllSubscriptionGroupRequestHeader
from rocketbroker.processor.admin.get_all_subscriptiongroup_config import GetAllSubscriptionGroupConfigProcessor
from tests.support.processor_calls import call_async, recorded


async def test_recorded_tables_and_pages(parts, encoder):
    groups = parts.subscription_groups
    processor = GetAllSubscriptionGroupConfigProcessor(groups, encoder)
    whole = pages = 0
    for command, theirs in recorded(201, GetAllSubscriptionGroupRequestHeader):
        total = int(theirs.fields["totalGroupNum"])
        wrapper = SubscriptionGroupWrapper.decode(fastjson.dumps(theirs.body))
        if len(wrapper.subscription_group_table) == total:
            groups.groups = wrapper.subscription_group_table
            whole += 1
        elif len(groups.groups) == total:
            pages += 1
        else:
            continue  # a page of a table of which no whole was recorded just before
        groups.forbidden_table, groups.data_version = wrapper.forbidden_table, wrapper.data_version
        assert await call_async(processor.process, command.header) == theirs
    assert whole > 30
    assert pages > 0


async def test_whole_table_without_fields(parts, encoder):
    header = GetAllSubscriptionGroupRequestHeader()
    answer = await call_async(
        GetAllSubscriptionGroupConfigProcessor(parts.subscription_groups, encoder).process, header
    )
    assert set(answer.body["subscriptionGroupTable"]) == set(parts.subscription_groups.groups)


async def test_a_page_says_what_is_forbidden_to_its_groups_only(parts, encoder):
    groups = parts.subscription_groups
    groups.groups = {name: SubscriptionGroupConfig(name) for name in "ab"}
    groups.forbidden_table = {"a": {"T": 1}, "b": {"T": 1}}
    header = GetAllSubscriptionGroupRequestHeader(0, "", 1)
    answer = await call_async(GetAllSubscriptionGroupConfigProcessor(groups, encoder).process, header)
    assert answer.body["forbiddenTable"] == {"a": {"T": 1}}
    assert answer.fields == {"totalGroupNum": "2"}
