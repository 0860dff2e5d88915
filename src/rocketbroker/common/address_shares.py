"""Shares of a bounded table by the address that fills it."""

from collections import Counter

_PORT_BYTES = 4
# An IPv6 host may use all addresses of its /64 network.
_NETWORK_BYTES = 8
_IPV4_BYTES = 4
_LOOPBACK = 127
_LOOPBACK_V6 = bytes(_NETWORK_BYTES)


def address_key(remote_host: bytes) -> bytes:
    """Return the key of a peer: its IPv4 address, or its IPv6 network.

    Args:
        remote_host: address and port of the peer, as in message records.
    """
    host = remote_host[:-_PORT_BYTES]
    return host if len(host) == _IPV4_BYTES else host[:_NETWORK_BYTES]


def is_loopback(key: bytes) -> bool:
    """Return true for this machine, whose processes are administrators and may fill a table alone."""
    return key[0] == _LOOPBACK if len(key) == _IPV4_BYTES else key == _LOOPBACK_V6


class AddressShares:
    """Number of entries that each address has in a table; an entry may count for several.

    An address may add an entry while the table has more free entries than the address has taken. So one address gets
    half of the table, two get a third each, and whatever number of addresses fills it, the next one finds some free.
    """

    def __init__(self) -> None:
        self._taken: Counter[bytes] = Counter()

    def taken(self, key: bytes) -> int:
        """Return the number of entries of an address."""
        return self._taken.get(key, 0)

    def allows(self, key: bytes, free: int, weight: int = 1) -> bool:
        """Return true if an address may add an entry to a table with this number of free entries."""
        return self._taken.get(key, 0) + weight <= free

    def add(self, key: bytes, weight: int = 1) -> None:
        """Count an entry of an address."""
        self._taken[key] += weight

    def remove(self, key: bytes, weight: int = 1) -> None:
        """Uncount an entry of an address."""
        self._taken[key] -= weight
        if not self._taken[key]:
            del self._taken[key]

    def clear(self) -> None:
        """Forget all counts."""
        self._taken.clear()
