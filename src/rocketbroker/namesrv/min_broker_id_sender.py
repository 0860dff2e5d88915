"""Delivery of NOTIFY_MIN_BROKER_ID_CHANGE without connecting to arbitrary registered addresses.

A registration may name any address, so a connection to it could hit a third party. Connect only to an address on the
host that the broker registered from, as RocketMQ does. Use the broker's own connection for any other address.
"""

import ipaddress
import logging
from collections.abc import Mapping

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RemotingError, shown
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.namesrv.broker_table import BrokerLiveInfo
from rocketbroker.transport.remoting_client import RemotingClient

log = logging.getLogger(__name__)

_PORT_BYTES = 4


class MinBrokerIdSender:
    """Send the newest header to each broker; drop older ones that still wait for a connection.

    Args:
        live: registered brokers by address.
        client: opens connections to brokers.
        tasks: owner of the connection attempts.
    """

    def __init__(self, live: Mapping[str, BrokerLiveInfo], client: RemotingClient, tasks: TaskOwner) -> None:
        self._live = live
        self._client = client
        self._tasks = tasks
        self._waiting: dict[str, NotifyMinBrokerIdChangeRequestHeader] = {}
        self._sending: set[str] = set()

    def send(self, address: str, header: NotifyMinBrokerIdChangeRequestHeader) -> None:
        """Notify a registered broker, one-way."""
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
            log.warning(
                "broker at %s could not be notified of the smallest broker id: %s", shown(address), shown(str(error))
            )
        finally:
            self._client.close_address(address)
            self._waiting.pop(address, None)
            self._sending.discard(address)


def is_own_host(address: str, connection: Connection) -> bool:
    """Return true if an address is on the host of a connection; false for an address with a host name."""
    try:
        host = ipaddress.ip_address(address.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return host.packed == connection.remote_host[:-_PORT_BYTES]
