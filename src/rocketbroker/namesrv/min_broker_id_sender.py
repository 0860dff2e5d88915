"""Carries NOTIFY_MIN_BROKER_ID_CHANGE to brokers without connecting to whatever address was registered.

A registration may name any address, so that a connection to it could be aimed at a third party. A broker whose address
is on the host it registered from is connected to there, as RocketMQ does. Any other hears it over its own connection.
"""

import ipaddress
import logging
from collections.abc import Mapping

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RemotingError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.common.shown_name import shown
from rocketbroker.namesrv.broker_table import BrokerLiveInfo
from rocketbroker.transport.remoting_client import RemotingClient

log = logging.getLogger(__name__)

_PORT_BYTES = 4


class MinBrokerIdSender:
    """Sends the newest header to each broker; older ones that still wait for a connection are dropped.

    Args:
        live: the registered brokers by address.
        client: connects to brokers.
        tasks: owns the tasks that do.
    """

    def __init__(self, live: Mapping[str, BrokerLiveInfo], client: RemotingClient, tasks: TaskOwner) -> None:
        self._live = live
        self._client = client
        self._tasks = tasks
        self._waiting: dict[str, NotifyMinBrokerIdChangeRequestHeader] = {}
        self._sending: set[str] = set()

    def send(self, address: str, header: NotifyMinBrokerIdChangeRequestHeader) -> None:
        """Tell a registered broker, one way."""
        info = self._live.get(address)
        if info is None:
            return
        if not is_own_host(address, info.connection):
            info.connection.send_oneway(request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header))
            return
        self._waiting[address] = header
        if address not in self._sending:
            self._sending.add(address)
            self._tasks.start(self._send_waiting(address), "notifyMinBrokerIdChanged")

    async def _send_waiting(self, address: str) -> None:
        try:
            while address in self._waiting:
                header = self._waiting.pop(address)
                await self._client.invoke_oneway(address, request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header))
        except RemotingError as error:
            log.warning("broker at %s was not told of the smallest broker id: %s", shown(address), shown(str(error)))
        finally:
            self._client.close_address(address)
            self._waiting.pop(address, None)
            self._sending.discard(address)


def is_own_host(address: str, connection: Connection) -> bool:
    """Tell if an address is on the host that a connection comes from; one with a host name is not known to be."""
    try:
        host = ipaddress.ip_address(address.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return host.packed == connection.remote_host[:-_PORT_BYTES]
