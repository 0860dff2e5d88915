import msgspec
import pytest

from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.topic_config import (
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
    TopicConfig,
)
from rocketbroker.codec.remoting.headers.admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from rocketbroker.codec.remoting.headers.admin import UpdateGroupForbiddenRequestHeader as Header
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.processor.admin.groups import GroupRequests
from tests.support.processor_calls import call, call_async, family, recorded, refusal, refusal_async

pytestmark = [
    pytest.mark.proves("Consumers", "a group is suspended, or forbidden a topic"),
]


@pytest.fixture
def processor(parts):
    return family(GroupRequests, parts)


def test_recorded_group(parts, processor):
    ((command, theirs),) = recorded(200)
    assert call(processor.update_and_create_subscriptiongroup, body=command.body) == theirs
    made = parts.subscription_groups.groups["CG_Adm"]
    assert made == SubscriptionGroupConfig.decode(command.body)
    assert made.retry_max_times == 5


def test_recorded_list(parts, processor):
    ((command, theirs),) = recorded(225)
    assert call(processor.update_and_create_subscriptiongroup_list, body=command.body) == theirs
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
        ({"attributes": {"+x": "1"}}, ResponseCode.SYSTEM_ERROR, "unsupported key: x"),
        ({"attributes": {"+priority.factor": "101"}}, ResponseCode.SYSTEM_ERROR, "priority.factor=101; use 0 to 100"),
        ({"attributes": {"+priority.factor": "x"}}, ResponseCode.SYSTEM_ERROR, "priority.factor=x; use 0 to 100"),
    ],
)
def test_bad_groups_are_named_and_change_nothing(parts, processor, fields, code, named):
    before = dict(parts.subscription_groups.groups)
    group = msgspec.structs.replace(SubscriptionGroupConfig("G"), **fields)
    for process, body in (
        (processor.update_and_create_subscriptiongroup, group),
        (
            processor.update_and_create_subscriptiongroup_list,
            SubscriptionGroupList([SubscriptionGroupConfig("Good"), group]),
        ),
    ):
        found_code, remark = refusal(process, body=body.encode())
        assert found_code == code
        assert named in remark
    assert parts.subscription_groups.groups == before


def test_a_group_has_attributes(parts, processor):
    for changes, wanted in (
        ({"+priority.factor": "50"}, {"priority.factor": "50"}),
        ({"+priority.factor": "0"}, {"priority.factor": "0"}),
        ({}, {"priority.factor": "0"}),
        ({"-priority.factor": ""}, {}),
    ):
        group = SubscriptionGroupConfig("G", attributes=changes)
        assert call(processor.update_and_create_subscriptiongroup, body=group.encode()).code == 0
        assert parts.subscription_groups.groups["G"].attributes == wanted


def test_a_list_may_change_a_group_twice_but_not_in_part(parts, processor):
    add, remove = ({f"{sign}priority.factor": "50"} for sign in "+-")

    def listed(*changes):
        return SubscriptionGroupList([SubscriptionGroupConfig("G", attributes=each) for each in changes]).encode()

    update = processor.update_and_create_subscriptiongroup_list
    assert call(update, body=listed(add, remove, add)).code == 0
    assert parts.subscription_groups.groups["G"].attributes == {"priority.factor": "50"}
    _, remark = refusal(update, body=listed(remove, remove))
    assert "attempt to delete a nonexistent key: priority.factor" in remark
    assert parts.subscription_groups.groups["G"].attributes == {"priority.factor": "50"}


@pytest.mark.parametrize("text", ["0", "+50", "0050", "-0", "100", "101", "-1", "", "5.0", "9" * 20])
def test_a_number_that_is_accepted_is_the_one_that_counts(parts, processor, text):
    group = SubscriptionGroupConfig("G", attributes={"+priority.factor": text})
    if text in {"101", "-1", "", "5.0", "9" * 20}:
        refusal(processor.update_and_create_subscriptiongroup, body=group.encode())
        assert "G" not in parts.subscription_groups.groups
    else:
        assert call(processor.update_and_create_subscriptiongroup, body=group.encode()).code == 0
        assert parts.subscription_groups.groups["G"].priority_factor == int(text)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"retryMaxTimes":"many"}'])
def test_bad_bodies_are_named(processor, body):
    code, remark = refusal(processor.update_and_create_subscriptiongroup, body=body)
    assert code == ResponseCode.SYSTEM_ERROR
    assert "the body of the request" in remark


@pytest.fixture
def processor_delete_subscriptiongroup(parts):
    parts.subscription_groups.find("G")
    parts.offsets.commit("G", "T", 0, 5)
    parts.offsets.commit("Other", "T", 0, 6)
    parts.stats.group_get("T", "G").add(1, 10)
    return family(GroupRequests, parts)


@pytest.mark.parametrize(("clean", "left"), [(True, -1), (False, 5)])
async def test_offsets_go_only_when_asked(parts, processor_delete_subscriptiongroup, clean, left):
    assert await call_async(
        processor_delete_subscriptiongroup.delete_subscriptiongroup, DeleteSubscriptionGroupRequestHeader("G", clean)
    ) == (0, None, {}, b"")
    assert not parts.subscription_groups.contains("G")
    assert parts.offsets.query("G", "T", 0) == left
    assert parts.offsets.query("Other", "T", 0) == 6
    assert parts.stats.view("GROUP_GET_NUMS", "T@G") is None


async def test_recorded_request(processor_delete_subscriptiongroup):
    ((command, theirs),) = recorded(207, DeleteSubscriptionGroupRequestHeader)
    assert await call_async(processor_delete_subscriptiongroup.delete_subscriptiongroup, command.header) == theirs
    assert command.header.clean_offset


@pytest.mark.parametrize("group", ["../up", "", "g" * 256])
async def test_bad_names_are_named(processor_delete_subscriptiongroup, group):
    code, remark = await refusal_async(
        processor_delete_subscriptiongroup.delete_subscriptiongroup, DeleteSubscriptionGroupRequestHeader(group, True)
    )
    assert code == ResponseCode.INVALID_PARAMETER
    assert "The specified group" in remark


async def test_recorded_tables_and_pages(parts, encoder):
    groups = parts.subscription_groups
    processor = family(GroupRequests, groups=groups, encoder=encoder)
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
        assert await call_async(processor.get_all_subscriptiongroup_config, command.header) == theirs
    assert whole > 30
    assert pages > 0


async def test_whole_table_without_fields(parts, encoder):
    header = GetAllSubscriptionGroupRequestHeader()
    answer = await call_async(family(GroupRequests, parts, encoder=encoder).get_all_subscriptiongroup_config, header)
    assert set(answer.body["subscriptionGroupTable"]) == set(parts.subscription_groups.groups)


async def test_a_page_says_what_is_forbidden_to_its_groups_only(parts, encoder):
    groups = parts.subscription_groups
    groups.groups = {name: SubscriptionGroupConfig(name) for name in "ab"}
    groups.forbidden_table = {"a": {"T": 1}, "b": {"T": 1}}
    header = GetAllSubscriptionGroupRequestHeader(0, "", 1)
    answer = await call_async(
        family(GroupRequests, groups=groups, encoder=encoder).get_all_subscriptiongroup_config, header
    )
    assert answer.body["forbiddenTable"] == {"a": {"T": 1}}
    assert answer.fields == {"totalGroupNum": "2"}


def test_recorded_requests(parts):
    processor = family(GroupRequests, parts)
    seen = [
        call(processor.get_subscriptiongroup_config, command.header) == theirs
        for command, theirs in recorded(352, GetSubscriptionGroupConfigRequestHeader)
    ]
    assert seen == [True] * 3


def test_unknown_group_without_auto_creation(parts, tmp_path):
    config = BrokerConfig(auto_create_subscription_group=False)
    groups = SubscriptionGroupManager(tmp_path / "groups.json", config, parts.clock)
    header = GetSubscriptionGroupConfigRequestHeader("Nope")
    answer = call(family(GroupRequests, groups=groups).get_subscriptiongroup_config, header)
    assert answer == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker", {}, b"")


@pytest.mark.parametrize("group", ["../up", "", "a b"])
def test_bad_names_make_no_group(parts, group):
    processor = family(GroupRequests, parts)
    code, remark = refusal(processor.get_subscriptiongroup_config, GetSubscriptionGroupConfigRequestHeader(group))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "The specified group" in remark
    assert not parts.subscription_groups.contains(group)


@pytest.fixture
def processor_update_and_get_group_forbidden(parts):
    for topic in ("T", "U", "GoldenTopic"):
        parts.topic_configs.update(TopicConfig(topic))
    for group in ("g", "CG_Push"):
        parts.subscription_groups.find(group)
    return family(GroupRequests, parts)


def readable(processor_update_and_get_group_forbidden, topic, change=None):
    answer = call(processor_update_and_get_group_forbidden.update_and_get_group_forbidden, Header("g", topic, change))
    assert answer[:3] == (0, "", {})
    assert answer.body.items() >= {"group": "g", "topic": topic}.items()
    return answer.body["readable"]


def test_the_limit_is_set_and_returned(parts, processor_update_and_get_group_forbidden):
    assert readable(processor_update_and_get_group_forbidden, "T")
    assert not readable(processor_update_and_get_group_forbidden, "T", False)
    assert not readable(processor_update_and_get_group_forbidden, "T")
    assert readable(processor_update_and_get_group_forbidden, "U")
    assert parts.subscription_groups.forbidden_table == {"g": {"T": 4}}
    assert readable(processor_update_and_get_group_forbidden, "T", True)
    assert parts.subscription_groups.forbidden_table == {}


def test_recorded_requests_update_and_get_group_forbidden(processor_update_and_get_group_forbidden):
    seen = 0
    for command, theirs in recorded(353, Header):
        ours = call(processor_update_and_get_group_forbidden.update_and_get_group_forbidden, command.header)
        # Clients that read no JSON headers get no remark at all from RocketMQ.
        assert ours._replace(remark=theirs.remark) == theirs
        seen += 1
    assert seen == 6


@pytest.mark.parametrize(
    ("wrong", "code", "named"),
    [
        (Header("h", "T", False), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group h does not exist"),
        (Header("g", "V", False), ResponseCode.TOPIC_NOT_EXIST, "topic[V] not exist"),
        (Header("../up", "T", False), ResponseCode.INVALID_PARAMETER, "The specified group"),
        (Header("g", "a/b", False), ResponseCode.INVALID_PARAMETER, "the topic 'a/b' is illegal"),
    ],
)
def test_a_missing_name_is_rejected(parts, processor_update_and_get_group_forbidden, wrong, code, named):
    found_code, remark = refusal(processor_update_and_get_group_forbidden.update_and_get_group_forbidden, wrong)
    assert found_code == code
    assert named in remark
    assert parts.subscription_groups.forbidden_table == {}


@pytest.fixture
def processor_query_topic_consume_by_who(parts):
    return family(GroupRequests, parts)


def test_groups_with_offsets_and_groups_with_clients(parts, consumer, processor_query_topic_consume_by_who):
    parts.offsets.commit("B", "T", 0, 1)
    parts.offsets.commit("Z", "Other", 0, 1)
    consumer("A", "a", "T", "Other")
    consumer("B", "b", "T", port=50002)
    answer = call(
        processor_query_topic_consume_by_who.query_topic_consume_by_who, QueryTopicConsumeByWhoRequestHeader("T")
    )
    assert answer == (0, None, {}, {"groupList": ["A", "B"]})


def test_recorded_requests_query_topic_consume_by_who(parts, processor_query_topic_consume_by_who):
    groups = set()
    for command, theirs in recorded(300, QueryTopicConsumeByWhoRequestHeader):
        parts.offsets.remove_topic(command.header.topic)
        for group in theirs.body["groupList"]:
            parts.offsets.commit(group, command.header.topic, 0, 1)
        theirs.body["groupList"].sort()
        assert call(processor_query_topic_consume_by_who.query_topic_consume_by_who, command.header) == theirs
        groups.update(theirs.body["groupList"])
    assert {"CID_RMQ_SYS_TRANS", "CG_Push"} <= groups


@pytest.mark.parametrize("topic", ["../up", ""])
def test_bad_names_are_named_query_topic_consume_by_who(processor_query_topic_consume_by_who, topic):
    code, remark = refusal(
        processor_query_topic_consume_by_who.query_topic_consume_by_who, QueryTopicConsumeByWhoRequestHeader(topic)
    )
    assert code == ResponseCode.INVALID_PARAMETER
    assert repr(topic) in remark


def test_recorded_requests_query_topics_by_consumer(parts):
    config = BrokerConfig(broker_ip1="127.0.0.1", listen_port=30911)
    processor = family(GroupRequests, parts, config=config)
    parts.offsets.commit("CG_Other", "T", 0, 1)
    seen = 0
    for command, theirs in recorded(343, QueryTopicsByConsumerRequestHeader):
        for topic in theirs.body["topicList"]:
            parts.offsets.commit(command.header.group, topic, 0, 1)
        theirs.body["topicList"].sort()
        assert call(processor.query_topics_by_consumer, command.header) == theirs
        seen += 1
    assert seen == 3


@pytest.mark.parametrize("group", ["../up", ""])
def test_bad_names_are_named_query_topics_by_consumer(parts, group):
    processor = family(GroupRequests, parts)
    code, remark = refusal(processor.query_topics_by_consumer, QueryTopicsByConsumerRequestHeader(group))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "The specified group" in remark


@pytest.fixture
def processor_query_subscription_by_consumer(parts):
    return family(GroupRequests, parts)


def test_recorded_requests_query_subscription_by_consumer(parts, consumer, processor_query_subscription_by_consumer):
    online = 0
    for command, theirs in recorded(345, QuerySubscriptionByConsumerRequestHeader):
        parts.consumers.groups.clear()
        if "subscriptionData" in theirs.body:
            consumer("CG_Live", "client", "GoldenTopic")
            theirs.body["subscriptionData"]["subVersion"] = 1795256109612
            online += 1
        assert call(processor_query_subscription_by_consumer.query_subscription_by_consumer, command.header) == theirs
    assert online == 2


def test_without_a_topic(processor_query_subscription_by_consumer):
    answer = call(
        processor_query_subscription_by_consumer.query_subscription_by_consumer,
        QuerySubscriptionByConsumerRequestHeader("G"),
    )
    assert answer == (0, None, {}, {"group": "G"})


@pytest.mark.parametrize(("group", "topic"), [("../up", "T"), ("G", "../up"), ("", "T"), ("G", "")])
def test_bad_names_are_named_query_subscription_by_consumer(processor_query_subscription_by_consumer, group, topic):
    code, remark = refusal(
        processor_query_subscription_by_consumer.query_subscription_by_consumer,
        QuerySubscriptionByConsumerRequestHeader(group, topic),
    )
    assert code == ResponseCode.INVALID_PARAMETER
    assert "; use " in remark or "The specified group" in remark
