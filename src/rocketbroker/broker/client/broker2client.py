"""Requests of the broker to its clients (org.apache.rocketmq.broker.client.net.Broker2Client)."""

from collections.abc import Mapping

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.bodies.offset import MessageQueueForC, ResetOffsetBody, ResetOffsetBodyForC
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.client import NotifyConsumerIdsChangedRequestHeader
from rocketbroker.codec.remoting.headers.offset import ResetOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode

# MQVersion.V3_0_7_SNAPSHOT: older clients do not support offset resets or queries of their offsets.
ASKS_FROM_VERSION = 28

_CPP = "CPP"


def notify_consumer_ids_changed(group: str, connection: Connection) -> None:
    """Notify a client to rebalance the queues of its group."""
    header = NotifyConsumerIdsChangedRequestHeader(group)
    connection.send_oneway(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))


def reset_consumer_client_offset(channel: ClientChannelInfo, header: ResetOffsetRequestHeader, body: bytes) -> bool:
    """Send a client the new offsets of queues that it consumes; return false if it is too far behind."""
    command = request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body, oneway=True)
    return channel.connection.send_oneway(command)


def reset_offset_body(channel: ClientChannelInfo, offsets: Mapping[MessageQueue, int]) -> RemotingSerializable:
    """Return the body of an offset reset in the form that the client's language reads."""
    if channel.language != _CPP:
        return ResetOffsetBody(dict(offsets))
    return ResetOffsetBodyForC(
        [MessageQueueForC(queue.topic, queue.broker_name, queue.queue_id, at) for queue, at in offsets.items()]
    )
