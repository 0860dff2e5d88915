"""Notices to brokers about a changed smallest id of their name (RouteInfoManager.notifyMinBrokerIdChanged).

A registration may name any address, so a connection to it could hit a third party. The sender connects only to an
address on the host that the broker registered from, as RocketMQ does, and uses the broker's own connection for any
other address.
"""

import ipaddress
import logging
from collections.abc import Callable, Mapping

from rocketbroker.codec.message.message_id import host_of
from rocketbroker.codec.remoting.bodies.route import BrokerData
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.errors import RemotingError, shown
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.namesrv.broker_table import BrokerLiveInfo
from rocketbroker.transport.remoting_client import RemotingClient

log = logging.getLogger(__name__)

Send = Callable[[str, NotifyMinBrokerIdChangeRequestHeader], None]


class MinBrokerIdNotifier:
    """Send NOTIFY_MIN_BROKER_ID_CHANGE if ``notifyMinBrokerIdChanged`` is on.

    Args:
        config: read at each use.
        send: sends the header one-way to the broker at an address, without waiting.
    """

    def __init__(self, config: NamesrvConfig, send: Send) -> None:
        self._config = config
        self._send = send

    def smaller_id_came(self, group: BrokerData, ha_broker_addr: str) -> None:
        """Notify the other brokers of a new smallest id; without others, notify the new broker."""
        smallest = min(group.broker_addrs)
        others = [address for broker_id, address in group.broker_addrs.items() if broker_id != smallest]
        self._notify(group, others or list(group.broker_addrs.values()), None, ha_broker_addr)

    def smallest_id_left(self, group: BrokerData, offline_broker_addr: str) -> None:
        """Notify the others that the smallest id left, if one of them may act as master."""
        if group.enable_acting_master:
            self._notify(group, list(group.broker_addrs.values()), offline_broker_addr, None)

    def _notify(self, group: BrokerData, addresses: list[str], offline: str | None, ha_broker_addr: str | None) -> None:
        if not self._config.notify_min_broker_id_changed:
            return
        smallest = min(group.broker_addrs)
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=smallest,
            min_broker_addr=group.broker_addrs[smallest],
            offline_broker_addr=offline,
            ha_broker_addr=ha_broker_addr,
        )
        text = "the smallest id of broker %s is %d now; notifying %d brokers"
        log.info(text, group.broker_name, smallest, len(addresses))
        for address in addresses:
            self._send(address, header)


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
        host = ipaddress.ip_address(host_of(address))
    except ValueError:
        return False
    return host.packed == connection.remote_host[:-_PORT_BYTES]
