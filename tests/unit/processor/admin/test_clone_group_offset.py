import pytest

from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.offset.offset_reset import OffsetReset
from rocketbroker.codec.remoting.bodies.client import MessageModel
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.message import CloneGroupOffsetRequestHeader as Header
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.processor.admin.clone_group_offset import CloneGroupOffsetProcessor
from tests.support.processor_calls import call_async, refusal_async


def make(parts, reset):
    return CloneGroupOffsetProcessor(
        parts.topic_configs, parts.subscription_groups, parts.consumers, parts.offsets, reset
    )


@pytest.fixture
def processor(parts, offset_reset):
    for topic in ("T", "U"):
        parts.topic_configs.update(TopicConfig(topic, 2, 2))
    for group in ("src", "dest"):
        parts.subscription_groups.find(group)
    for topic, queue_id, offset in (("T", 0, 7), ("T", 1, 8), ("U", 0, 9), ("Gone", 0, 1)):
        parts.offsets.commit("src", topic, queue_id, offset)
    parts.offsets.commit("dest", "T", 0, 100)
    return make(parts, offset_reset)


@pytest.mark.parametrize("offline", [True, False])
async def test_one_topic(parts, processor, offline):
    assert await call_async(processor.process, Header("src", "dest", "T", offline)) == (0, None, {}, b"")
    assert parts.offsets.offsets_of("dest", "T") == parts.offsets.offsets_of("src", "T") == {0: 7, 1: 8}
    assert parts.offsets.offsets_of("dest", "U") == {}


@pytest.mark.parametrize("topic", [None, ""])
async def test_all_topics_that_exist(parts, processor, topic):
    await call_async(processor.process, Header("src", "dest", topic))
    assert parts.offsets.topics_of("dest") == {"T", "U"}
    assert parts.offsets.offsets_of("dest", "U") == {0: 9}


async def test_topics_that_a_running_group_does_not_subscribe_to(parts, processor, consumer):
    consumer("src", "client", "T")
    code, remark = await refusal_async(processor.process, Header("src", "dest", "U"))
    assert (code, "no offsets to clone in topic U" in remark) == (ResponseCode.SYSTEM_ERROR, True)
    await call_async(processor.process, Header("src", "dest"))
    assert parts.offsets.topics_of("dest") == {"T"}
    await call_async(processor.process, Header("src", "dest", "U", offline=True))
    assert parts.offsets.offsets_of("dest", "U") == {0: 9}


async def test_a_running_group_is_moved(parts, processor, consumer):
    connection = consumer("dest", "client", "T")
    await call_async(processor.process, Header("src", "dest", "T"))
    assert not parts.offsets.commit("dest", "T", 0, 101)
    assert parts.offsets.redirect("dest", "T", 0, connection) == 7


@pytest.mark.parametrize("why", ["broadcasting", "setting"])
async def test_a_group_that_the_broker_does_not_reset_has_the_offsets_and_is_not_moved(parts, processor, consumer, why):
    parts.offsets.assign_reset("dest", "T", 0, 3)
    model = MessageModel.BROADCASTING if why == "broadcasting" else MessageModel.CLUSTERING
    connection = consumer("dest", "client", "T", model=model)
    if why == "setting":
        apply_updates([parts.config], {"useServerSideResetOffset": "false"})
    await call_async(processor.process, Header("src", "dest", "T"))
    assert parts.offsets.offsets_of("dest", "T") == {0: 7, 1: 8}
    assert parts.offsets.redirect("dest", "T", 0, connection) is None
    assert parts.offsets.commit("dest", "T", 0, 101)


async def test_a_new_group_is_made_where_clients_may_make_one(parts, processor):
    await call_async(processor.process, Header("src", "new", "T"))
    assert parts.subscription_groups.contains("new")
    apply_updates([parts.config], {"autoCreateSubscriptionGroup": "false"})
    code, remark = await refusal_async(processor.process, Header("src", "newer", "T"))
    assert code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "autoCreateSubscriptionGroup is false" in remark


@pytest.mark.parametrize(
    ("wrong", "code", "named"),
    [
        (Header("src", "dest", "V"), ResponseCode.TOPIC_NOT_EXIST, "Topic V does not exist"),
        (Header("src", "dest", "a/b"), ResponseCode.INVALID_PARAMETER, "the topic 'a/b' is illegal"),
        (Header("nobody", "dest", "T"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group nobody does not exist"),
        (Header("../up", "dest", "T"), ResponseCode.INVALID_PARAMETER, "The specified group"),
        (Header("src", "../up", "T"), ResponseCode.INVALID_PARAMETER, "The specified group"),
        (Header("dest", "src", "U"), ResponseCode.SYSTEM_ERROR, "no offsets to clone in topic U"),
    ],
)
async def test_an_impossible_value_is_rejected_and_changes_nothing(parts, processor, wrong, code, named):
    before = {key: dict(queues) for key, queues in parts.offsets.table.items()}
    found_code, remark = await refusal_async(processor.process, wrong)
    assert found_code == code
    assert named in remark
    assert parts.offsets.table == before


async def test_a_failing_disk_is_reported(parts, processor):
    async def drain():
        return {parts.offsets.path}

    refused = make(parts, OffsetReset(parts.config, parts.offsets, PullRequestHoldService(parts.config), drain))
    code, remark = await refusal_async(refused.process, Header("src", "dest", "T"))
    assert (code, "valid until this process stops" in remark) == (ResponseCode.SYSTEM_ERROR, True)
