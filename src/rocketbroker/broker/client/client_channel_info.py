"""A client on a connection (org.apache.rocketmq.broker.client.ClientChannelInfo)."""

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.common.shown_name import shown


class ClientChannelInfo:
    """A connected client; ``last_update`` is the time of its last heartbeat in seconds of the monotonic clock."""

    __slots__ = ("client_id", "connection", "language", "last_update", "version")

    def __init__(self, connection: Connection, client_id: str, language: str, version: int, last_update: float) -> None:
        self.connection = connection
        self.client_id = client_id
        self.language = language
        self.version = version
        self.last_update = last_update

    def __repr__(self) -> str:
        return f"{shown(self.client_id)}@{self.connection.remote_address}"
