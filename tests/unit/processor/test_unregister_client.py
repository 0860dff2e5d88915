import pytest

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.codec.remoting.bodies.client import ConsumerData
from rocketbroker.codec.remoting.headers.admin import UnregisterClientRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.processor.unregister_client import UnregisterClientProcessor
from tests.support.fakes import FakeConnection


@pytest.mark.parametrize(
    ("producer", "consumer"), [("p", None), (None, "g"), ("p", "g"), ("", ""), ("unknown", "unknown"), ("p", "")]
)
def test_leaves_the_named_groups(parts, producer, consumer):
    channel = ClientChannelInfo(FakeConnection(), "c", "JAVA", 513, parts.clock.monotonic())
    parts.producers.register("p", channel)
    parts.consumers.register(channel, ConsumerData("g"))
    command = request(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader("c", producer, consumer))
    answer = UnregisterClientProcessor(parts.consumers, parts.producers).process(channel.connection, command)
    assert (answer.code, answer.header) == (0, {})
    assert ("p" in parts.producers.groups) == (producer != "p")
    assert ("g" in parts.consumers.groups) == (consumer != "g")


def test_another_connection_cannot_unregister_it(parts):
    channel = ClientChannelInfo(FakeConnection(), "c", "JAVA", 513, parts.clock.monotonic())
    parts.producers.register("p", channel)
    command = request(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader("c", "p", "g"))
    UnregisterClientProcessor(parts.consumers, parts.producers).process(FakeConnection(), command)
    assert "p" in parts.producers.groups
