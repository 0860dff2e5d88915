"""Entries for clients in the answers of GET_CONSUMER_CONNECTION_LIST and GET_PRODUCER_CONNECTION_LIST."""

from collections.abc import Iterable

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.codec.remoting.bodies.client import Connection


def client_connections(channels: Iterable[ClientChannelInfo]) -> list[Connection]:
    """Return an entry with client id and address for each client."""
    return [
        Connection(channel.client_id, channel.connection.remote_address, channel.language, channel.version)
        for channel in channels
    ]
