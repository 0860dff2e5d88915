"""Requests of the broker to its clients (org.apache.rocketmq.broker.client.net.Broker2Client)."""

from collections.abc import Iterable

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.client import NotifyConsumerIdsChangedRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode


def notify_consumer_ids_changed(group: str, connections: Iterable[Connection]) -> None:
    """Have the clients of a group share its queues anew."""
    for connection in connections:
        header = NotifyConsumerIdsChangedRequestHeader(group)
        connection.send_oneway(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))
