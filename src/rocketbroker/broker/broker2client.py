"""Requests of the broker to its clients (org.apache.rocketmq.broker.client.net.Broker2Client)."""

from collections.abc import Iterable, Mapping

from rocketbroker.broker.client_channel_info import ClientChannelInfo
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.bodies.offset import MessageQueueForC, ResetOffsetBody, ResetOffsetBodyForC
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.client import NotifyConsumerIdsChangedRequestHeader
from rocketbroker.codec.remoting.headers.offset import ResetOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode

# MQVersion.V3_0_7_SNAPSHOT: older clients know nothing of resets and of questions for their offsets.
ASKS_FROM_VERSION = 28

_CPP = "CPP"


def notify_consumer_ids_changed(group: str, connection: Connection) -> None:
    """Have a client share the queues of its group anew."""
    header = NotifyConsumerIdsChangedRequestHeader(group)
    connection.send_oneway(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))


def reset_consumer_client_offset(
    channels: Iterable[ClientChannelInfo], header: ResetOffsetRequestHeader, offsets: Mapping[MessageQueue, int]
) -> None:
    """Have clients go to these offsets, as far as they consume the queues."""
    body = ResetOffsetBody(dict(offsets)).encode()
    queues = [MessageQueueForC(queue.topic, queue.broker_name, queue.queue_id, at) for queue, at in offsets.items()]
    body_for_c = ResetOffsetBodyForC(queues).encode()
    for channel in channels:
        fitting = body_for_c if channel.language == _CPP else body
        channel.connection.send_oneway(request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, fitting, oneway=True))
