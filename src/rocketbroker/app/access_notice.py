"""Log line about access at a server's start."""

import ipaddress
import logging

from rocketbroker.common.config import TransportConfig
from rocketbroker.transport.listening_sockets import ALL_ADDRESSES

log = logging.getLogger(__name__)


def log_access(transport: TransportConfig) -> None:
    """Log the access mode and the peers that it admits; warn if it admits everyone."""
    if transport.protected_mode:
        lists = ", ".join(
            f"{name}={networks}" if networks else f"{name} is empty"
            for name, networks in (
                ("adminWhiteList", transport.admin_white_list),
                ("brokerWhiteList", transport.broker_white_list),
            )
        )
        log.info("protected mode is on: peers on other machines are clients only; %s", lists)
    elif _is_loopback(transport.bind_address):
        log.info("protected mode is off; only this machine can reach %s", transport.bind_address)
    else:
        log.warning(
            "protected mode is off: anyone who can reach %s may administer this server; set protectedMode=true, or "
            "bindAddress or a firewall to limit who can",
            transport.bind_address or ALL_ADDRESSES,
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
