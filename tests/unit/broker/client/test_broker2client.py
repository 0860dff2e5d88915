from rocketbroker.broker.client.broker2client import reset_consumer_client_offset, reset_offset_body
from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.bodies.offset import ResetOffsetBody
from rocketbroker.codec.remoting.headers.offset import ResetOffsetRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.fakes import FakeConnection


def test_each_client_gets_the_offsets_in_its_form():
    queue = MessageQueue("T", "broker-a", 3)
    connections = {language: FakeConnection() for language in ("JAVA", "CPP")}
    clients = [ClientChannelInfo(found, language, language, 513, 0.0) for language, found in connections.items()]
    header = ResetOffsetRequestHeader("g", "T", 5, True)
    for client in clients:
        assert reset_consumer_client_offset(client, header, reset_offset_body(client, {queue: 42}).encode())
    sent = {}
    for language, connection in connections.items():
        (command,) = connection.sent
        assert (command.code, command.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
        assert command.header == header
        sent[language] = command.body
    assert ResetOffsetBody.decode(sent["JAVA"]).offset_table == {queue: 42}
    assert fastjson.loads(sent["CPP"]) == {
        "offsetTable": [{"brokerName": "broker-a", "offset": 42, "queueId": 3, "topic": "T"}]
    }
