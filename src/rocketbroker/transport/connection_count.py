"""Number of open connections, in total and by address."""

import ipaddress
import logging
import time
from collections import Counter
from math import inf

from rocketbroker.transport.connection_limits import ConnectionLimits

log = logging.getLogger(__name__)

_REPEAT_LOG_S = 10.0
# Connections kept for administrators, brokers and this machine: a sixteenth, and enough for some hosts with tools.
_SHARE_OF_RESERVE = 16
_MOST_RESERVED = 256


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


def _reserve(limit: int) -> int:
    """Return how many of a number of connections are kept for trusted peers."""
    return min(limit // _SHARE_OF_RESERVE, _MOST_RESERVED)


def _kept(limit: int, *, is_trusted: bool) -> str:
    return "" if is_trusted or not _reserve(limit) else f"; {_reserve(limit)} of them are kept for administrators"


class ConnectionCount:
    """Limit on connections in total and by address; logs how many were rejected.

    Some connections are kept for trusted peers (``_reserve``), so that an administrator gets in when strangers have
    taken all others. With ``maxConnectionsPerAddress`` 0, an address of strangers may have as many connections as are
    left for strangers when it asks for one more. So one address gets half of them, two get a third each, and only a
    dozen or more together fill the server. Trusted peers may take all.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limit = limits.max_connections
        self._address_limit = limits.max_connections_per_address
        self._max_descriptor = limits.max_descriptor
        self._count = 0
        self._by_source: Counter[str] = Counter()
        self._turned_away = 0
        self._told = float("-inf")

    def enter(self, address: str, descriptor: int = -1, *, is_trusted: bool = False) -> bool:
        """Count a connection from ``ip:port``; return false if a limit is reached and it must be closed."""
        source, is_local = _source(address)
        reason = self._why_full(source, descriptor, is_trusted=is_trusted or is_local)
        if reason:
            self._log(address, reason)
            return False
        self._count += 1
        self._by_source[source] += 1
        return True

    def _why_full(self, source: str, descriptor: int, *, is_trusted: bool) -> str:
        """Return the reason why an address gets no further connection, or an empty text."""
        left = self._left(self._limit, self._count, is_trusted=is_trusted)
        # The kernel assigns the lowest free descriptor, so all lower ones are in use.
        left_files = self._left(self._max_descriptor, descriptor, is_trusted=is_trusted)
        if left_files <= 0:
            return (
                f"{self._count} connections are open, and the process may open only {self._max_descriptor:,} files, "
                f"so that the store keeps its reserve (ulimit -n){_kept(self._max_descriptor, is_trusted=is_trusted)}"
            )
        if left <= 0:
            kept = _kept(self._limit, is_trusted=is_trusted)
            return f"{self._count} connections are open and the limit is {self._limit} (maxConnections){kept}"
        held, limit = self._by_source[source], self._address_limit
        if limit and held >= limit:
            return f"{limit} connections are open from {source}, the limit of each address (maxConnectionsPerAddress)"
        if not limit and not is_trusted and held >= min(left, left_files):
            return (
                f"{held} connections are open from {source}, which may have as many as are left of maxConnections "
                "and ulimit -n; set maxConnectionsPerAddress to give each address a fixed number"
            )
        return ""

    @staticmethod
    def _left(limit: int, used: int, *, is_trusted: bool) -> float:
        return limit - (0 if is_trusted else _reserve(limit)) - used if limit else inf

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
