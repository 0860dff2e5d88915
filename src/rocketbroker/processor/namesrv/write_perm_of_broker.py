"""WIPE_WRITE_PERM_OF_BROKER (205), ADD_WRITE_PERM_OF_BROKER (327): take a broker out of the send routes, and back."""

import logging

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.common.errors import shown
from rocketbroker.namesrv.route_info_manager import RouteInfoManager

log = logging.getLogger(__name__)


class WritePermOfBrokerProcessor:
    """Changes the permission of all topics of a broker and answers how many it has; 0 for an unknown broker."""

    def __init__(self, routes: RouteInfoManager) -> None:
        self._routes = routes

    def process_wipe(
        self, connection: Connection, command: RemotingCommand[WipeWritePermOfBrokerRequestHeader]
    ) -> Command:
        """Remove the write permission (205)."""
        name = command.header.broker_name
        count = self._routes.wipe_write_perm_of_broker(name)
        log.info(
            "broker %s: write permission removed from %d topics by %s", shown(name), count, connection.remote_address
        )
        return response(header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    def process_add(
        self, connection: Connection, command: RemotingCommand[AddWritePermOfBrokerRequestHeader]
    ) -> Command:
        """Restore the write permission (327)."""
        name = command.header.broker_name
        count = self._routes.add_write_perm_of_broker(name)
        log.info(
            "broker %s: write permission restored to %d topics by %s", shown(name), count, connection.remote_address
        )
        return response(header=AddWritePermOfBrokerResponseHeader(add_topic_count=count))
