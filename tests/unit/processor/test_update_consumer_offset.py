import pytest

from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.update_consumer_offset import UpdateConsumerOffsetProcessor
from tests.support.fakes import FakeConnection
from tests.support.golden_frames import answers_to


@pytest.fixture
def processor(parts):
    parts.topic_configs.update(TopicConfig("T", 4, 4))
    parts.subscription_groups.find("g")
    return UpdateConsumerOffsetProcessor(parts.offsets, parts.subscription_groups, parts.topic_configs)


def commit(processor, *fields):
    command = request(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(*fields))
    return processor.process(FakeConnection(), command)


@pytest.mark.parametrize("offset", [0, 7, -1, 2**63 - 1])
def test_offset_is_kept(processor, parts, offset):
    answer = commit(processor, "g", "T", 3, offset)
    assert (answer.code, answer.remark, answer.header) == (0, None, {})
    assert parts.offsets.query("g", "T", 3) == offset


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        (("h", "T", 0, 1), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group h not exist!"),
        (("../g", "T", 0, 1), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group ../g not exist!"),
        (("g", "U", 0, 1), ResponseCode.TOPIC_NOT_EXIST, "Topic U not exist!"),
        (("g", "T", 4, 1), ResponseCode.INVALID_PARAMETER, "topic T has the queues 0 to 3"),
        (("g", "T", -1, 1), ResponseCode.INVALID_PARAMETER, "topic T has the queues 0 to 3"),
    ],
)
def test_what_does_not_exist_is_refused(processor, parts, fields, code, remark):
    answer = commit(processor, *fields)
    assert answer.code == code
    assert remark in answer.remark
    assert parts.offsets.table == {}


def test_recorded_commits(parts):
    """Each recorded commit of each client, with the groups that the recorded broker knew."""
    processor = UpdateConsumerOffsetProcessor(parts.offsets, parts.subscription_groups, parts.topic_configs)
    route = Route(RequestCode.UPDATE_CONSUMER_OFFSET, processor.process, UpdateConsumerOffsetRequestHeader)
    exchanges = answers_to(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert exchanges
    for exchange in exchanges:
        command = route.decode(int(exchange.request.binary), memoryview(exchange.request.header()))
        assert exchange.response is not None
        theirs = exchange.response.command()
        if theirs.code == 0:
            parts.subscription_groups.find(command.header.consumer_group)
            parts.topic_configs.update(TopicConfig(command.header.topic))
        ours = processor.process(FakeConnection(), command)
        assert (ours.code, ours.remark, ours.header) == (theirs.code, theirs.remark, theirs.header or {})
        kept = parts.offsets.query(command.header.consumer_group, command.header.topic, command.header.queue_id)
        assert (kept == command.header.commit_offset) == (theirs.code == 0)
