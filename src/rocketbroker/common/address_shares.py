"""Shares of a bounded table by the address that fills it."""

from collections import Counter

_PORT_BYTES = 4
# An IPv6 host may use all addresses of its /64 network.
_NETWORK_BYTES = 8
_IPV4_BYTES = 4


def address_key(remote_host: bytes) -> bytes:
    """Return the key of a peer: its IPv4 address, or its IPv6 network.

    Args:
        remote_host: address and port of the peer, as in message records.
    """
    host = remote_host[:-_PORT_BYTES]
    return host if len(host) == _IPV4_BYTES else host[:_NETWORK_BYTES]


class AddressShares:
    """Number of entries that each address has in a table.

    An address may add an entry while the table has more free entries than the address has taken. So one address gets
    half of the table, two get a third each, and whatever number of addresses fills it, the next one finds some free.
    """

    def __init__(self) -> None:
        self._taken: Counter[bytes] = Counter()

    def allows(self, key: bytes, free: int) -> bool:
        """Return true if an address may add an entry to a table with this number of free entries."""
        return self._taken[key] < free if key in self._taken else free > 0

    def add(self, key: bytes) -> None:
        """Count an entry of an address."""
        self._taken[key] += 1

    def remove(self, key: bytes) -> None:
        """Uncount an entry of an address."""
        self._taken[key] -= 1
        if not self._taken[key]:
            del self._taken[key]

    def clear(self) -> None:
        """Forget all counts."""
        self._taken.clear()
