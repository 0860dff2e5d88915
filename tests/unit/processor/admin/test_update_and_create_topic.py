import msgspec
import pytest

from rocketbroker.codec.remoting.bodies.topic_config import CreateTopicListRequestBody, TopicConfig, TopicFilterType
from rocketbroker.codec.remoting.headers.admin import CreateTopicRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.processor.admin.update_and_create_topic import (
    MAX_QUEUE_NUMS,
    UpdateAndCreateTopicProcessor,
    parse_attributes,
)
from tests.support.heard_topics import HeardTopics
from tests.support.processor_calls import call, recorded, refusal


def header(topic="T", **fields):
    defaults = CreateTopicRequestHeader(topic, "TBW102", 4, 4, 6, "SINGLE_TAG", 0, False, "")
    return msgspec.structs.replace(defaults, **fields)


@pytest.fixture
def told(parts):
    heard = HeardTopics()
    parts.topic_configs.on_change(heard)
    return heard


@pytest.fixture
def processor(parts):
    return UpdateAndCreateTopicProcessor(parts.config, parts.topic_configs)


def test_recorded_requests_make_what_they_name(parts, processor, told):
    seen = 0
    for command, theirs in recorded(17, CreateTopicRequestHeader):
        ours = call(processor.process, command.header)
        assert (ours.code, ours.fields, ours.body) == (theirs.code, theirs.fields, theirs.body)
        made = parts.topic_configs.select(command.header.topic)
        wanted = command.header
        assert (made.read_queue_nums, made.write_queue_nums) == (wanted.read_queue_nums, wanted.write_queue_nums)
        assert (made.perm, made.order, made.topic_sys_flag) == (wanted.perm, wanted.order, wanted.topic_sys_flag)
        seen += 1
    assert seen == 10
    assert parts.topic_configs.select("AdmFifo").attributes == {"message.type": "FIFO"}
    assert {topic.topic_name for topic in told} >= {"AdmTopic", "AdmFifo", "AdmOrder", "CreatedByProducer"}


def test_recorded_list(parts, processor, told):
    (command, theirs), *more = recorded(18)
    assert not more
    ours = call(processor.process_list, body=command.body)
    assert (ours.code, ours.fields, ours.body) == (theirs.code, theirs.fields, theirs.body)
    wanted = CreateTopicListRequestBody.decode(command.body).topic_config_list
    assert [parts.topic_configs.select(topic.topic_name) for topic in wanted] == wanted == told


def test_unchanged_topic_is_not_registered_again(parts, processor, told):
    call(processor.process, header())
    version = parts.topic_configs.data_version.copy()
    assert call(processor.process, header()).code == 0
    assert len(told) == 1
    assert parts.topic_configs.data_version == version
    call(processor.process, header(perm=4))
    assert len(told) == 2


def test_attributes_change_one_by_one(parts, processor):
    call(processor.process, header(attributes="+message.type=FIFO"))
    call(processor.process, header(attributes="+message.type=DELAY"))
    assert parts.topic_configs.select("T").attributes == {"message.type": "DELAY"}
    call(processor.process, header(attributes="-message.type"))
    assert parts.topic_configs.select("T").attributes == {}


@pytest.mark.parametrize(
    ("wrong", "code", "named"),
    [
        (header("../up"), ResponseCode.INVALID_PARAMETER, "The specified topic: ../up"),
        (header(""), ResponseCode.INVALID_PARAMETER, "blank"),
        (header("t" * 128), ResponseCode.INVALID_PARAMETER, "longer than topic max length"),
        (header("TBW102"), ResponseCode.INVALID_PARAMETER, "The topic[TBW102] is conflict with system topic."),
        (header("broker-a"), ResponseCode.INVALID_PARAMETER, "The topic[broker-a] is conflict"),
        (header("rmq_sys_x"), ResponseCode.INVALID_PARAMETER, "is conflict with system topic."),
        (header(read_queue_nums=-1), ResponseCode.INVALID_PARAMETER, "readQueueNums -1 of topic T"),
        (header(write_queue_nums=MAX_QUEUE_NUMS + 1), ResponseCode.INVALID_PARAMETER, "writeQueueNums 16385"),
        (header(perm=8), ResponseCode.INVALID_PARAMETER, "perm 8"),
        (header(topic_filter_type="NO_TAG"), ResponseCode.INVALID_PARAMETER, "topicFilterType 'NO_TAG'"),
        (header(attributes="+message.type=MIXED"), ResponseCode.INVALID_PARAMETER, "MIXED message type"),
        (header(attributes="+x=1"), ResponseCode.SYSTEM_ERROR, "unsupported key: x"),
        (header(attributes="x=1"), ResponseCode.SYSTEM_ERROR, "'x=1'"),
        (header(attributes="+x"), ResponseCode.SYSTEM_ERROR, "'+x'"),
        (header(attributes="-message.type"), ResponseCode.SYSTEM_ERROR, "message.type"),
    ],
)
def test_bad_requests_are_named_and_change_nothing(parts, processor, told, wrong, code, named):
    before = dict(parts.topic_configs.topics)
    found_code, remark = refusal(processor.process, wrong)
    assert found_code == code
    assert named in remark
    assert parts.topic_configs.topics == before
    assert told == []


def test_a_list_is_made_whole_or_not_at_all(parts, processor):
    good, bad = TopicConfig("Good"), TopicConfig("Bad", attributes={"+cleanup.policy": "NEVER"})
    _, remark = refusal(processor.process_list, body=CreateTopicListRequestBody([good, bad]).encode())
    assert "cleanup.policy=NEVER" in remark
    assert parts.topic_configs.select("Good") is None


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b'{"topicConfigList":[{"readQueueNums":"x"}]}'])
def test_bad_lists_are_named(processor, body):
    code, remark = refusal(processor.process_list, body=body)
    assert code == ResponseCode.SYSTEM_ERROR
    assert "the body of the request" in remark


def test_attributes_as_text():
    assert parse_attributes("") == {}
    assert parse_attributes("+a=1,-b,+c=x=y") == {"+a": "1", "-b": "", "+c": "x=y"}


def test_filter_types_are_those_of_topics():
    assert set(TopicFilterType.__members__) == set(TopicFilterType)


def test_mixed_topics_are_made_where_they_are_allowed(parts, processor):
    apply_updates([parts.config], {"enableMixedMessageType": "true"})
    assert call(processor.process, header(attributes="+message.type=MIXED")).code == 0
    assert parts.topic_configs.select("T").attributes == {"message.type": "MIXED"}
