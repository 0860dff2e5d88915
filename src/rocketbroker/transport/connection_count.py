"""Number of open connections, in total and by address."""

import ipaddress
import logging
import time
from collections import Counter

from rocketbroker.transport.connection_limits import ConnectionLimits

log = logging.getLogger(__name__)

_REPEAT_LOG_S = 10.0


def _source(address: str) -> tuple[str, bool]:
    """Return the key under which an ``ip:port`` is counted, and true for this machine.

    IPv6 addresses count by network, since one host may use all addresses of its network.
    """
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host, False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return str(ipaddress.ip_network((ip, 64), strict=False)), ip.is_loopback
        ip = ip.ipv4_mapped
    return str(ip), ip.is_loopback


class ConnectionCount:
    """Limit on connections in total and by address; logs how many were rejected.

    With ``maxConnectionsPerAddress`` 0, one address may take half of ``maxConnections``; this machine may take all.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limit = limits.max_connections
        self._address_limit = limits.max_connections_per_address
        self._max_descriptor = limits.max_descriptor
        self._count = 0
        self._by_source: Counter[str] = Counter()
        self._turned_away = 0
        self._told = float("-inf")

    def enter(self, address: str, descriptor: int = -1) -> bool:
        """Count a connection from ``ip:port``; return false if a limit is reached and it must be closed."""
        # The kernel assigns the lowest free descriptor, so all lower ones are in use.
        if 0 < self._max_descriptor <= descriptor:
            self._log(
                address,
                f"{self._count} connections are open, and the process may open only {self._max_descriptor:,} files, "
                "so that the store keeps its reserve (ulimit -n)",
            )
            return False
        if self._limit and self._count >= self._limit:
            self._log(address, f"{self._count} connections are open and the limit is {self._limit} (maxConnections)")
            return False
        source, is_local = _source(address)
        limit = self._address_limit or (0 if is_local else self._limit // 2)
        if limit and self._by_source[source] >= limit:
            set_by = "maxConnectionsPerAddress" if self._address_limit else "half of maxConnections"
            self._log(address, f"{limit} connections are open from {source}, the limit of each address ({set_by})")
            return False
        self._count += 1
        self._by_source[source] += 1
        return True

    def leave(self, address: str) -> None:
        """Uncount a closed connection."""
        source, _ = _source(address)
        self._count -= 1
        self._by_source[source] -= 1
        if not self._by_source[source]:
            del self._by_source[source]

    def _log(self, address: str, reason: str) -> None:
        self._turned_away += 1
        now = time.monotonic()
        if now >= self._told + _REPEAT_LOG_S:
            log.warning(
                "connection from %s rejected: %s; rejected since the last such line: %d",
                address,
                reason,
                self._turned_away,
            )
            self._turned_away, self._told = 0, now
