"""Notices to brokers about a changed smallest id of their name (RouteInfoManager.notifyMinBrokerIdChanged)."""

import logging
from collections.abc import Callable

from rocketbroker.codec.remoting.bodies.route import BrokerData
from rocketbroker.codec.remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from rocketbroker.common.config.namesrv_config import NamesrvConfig

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
