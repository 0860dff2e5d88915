"""UNREGISTER_CLIENT (35): removes a client from its groups (ClientManageProcessor.unregisterClient)."""

from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import UnregisterClientRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response


class UnregisterClientProcessor:
    """Drops the client from the producer group, the consumer group, or both."""

    def __init__(self, consumers: ConsumerManager, producers: ProducerManager) -> None:
        self._consumers = consumers
        self._producers = producers

    def process(self, connection: Connection, command: RemotingCommand[UnregisterClientRequestHeader]) -> Command:
        """Answer the request; a group without the client is not an error."""
        header = command.header
        if header.producer_group:
            self._producers.unregister(header.producer_group, connection)
        if header.consumer_group:
            self._consumers.unregister(header.consumer_group, connection)
        return response(header={})
