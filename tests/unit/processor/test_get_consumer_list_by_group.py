import json

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.codec.remoting.bodies.client import ConsumerData
from rocketbroker.codec.remoting.headers.admin import GetConsumerListByGroupRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.get_consumer_list_by_group import GetConsumerListByGroupProcessor
from tests.support.fakes import FakeConnection


def ask(parts, group):
    command = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(group))
    return GetConsumerListByGroupProcessor(parts.consumers).process(FakeConnection(), command)


def test_ids_of_the_clients(parts):
    for name in ("one", "two"):
        channel = ClientChannelInfo(FakeConnection(), name, "JAVA", 513, parts.clock.monotonic())
        parts.consumers.register(channel, ConsumerData("g"))
    answer = ask(parts, "g")
    assert answer.code == 0
    assert json.loads(answer.body) == {"consumerIdList": ["one", "two"]}


def test_group_without_clients(parts):
    answer = ask(parts, "g")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, g")
