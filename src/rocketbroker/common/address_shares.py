"""Limits on strangers: shares of a bounded table by address, and rates in bytes."""

from collections import Counter

from rocketbroker.common.clock import Clock

_DAY_S = 86_400
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
    half of the free ones and the next a quarter: a table of n entries is full after about log2(n) addresses, not after
    one. ``None`` stands for a trusted peer, which may take all.

    Args:
        clock: for a table whose entries outlast their clients, and whose removals do not name an address: counts
            restart each day, so that a client which creates and deletes is rejected for a day at most.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._day = 0.0
        self._taken: Counter[bytes] = Counter()

    def taken(self, key: bytes) -> int:
        """Return the number of entries of an address."""
        return self._taken.get(key, 0)

    def allows(self, key: bytes | None, free: int, weight: int = 1) -> bool:
        """Return true if an address may add an entry to a table with this number of free entries."""
        if key is None:
            return weight <= free
        if self._clock is not None and (day := self._clock.monotonic() // _DAY_S) != self._day:
            self._day = day
            self._taken.clear()
        return self._taken.get(key, 0) + weight <= free

    def add(self, key: bytes | None, weight: int = 1) -> None:
        """Count an entry of an address."""
        if key is not None:
            self._taken[key] += weight

    def remove(self, key: bytes | None, weight: int = 1) -> None:
        """Uncount an entry of an address."""
        if key is not None:
            self._taken[key] -= weight
            if not self._taken[key]:
                del self._taken[key]


# Seconds for which unused bytes are kept.
BURST_S = 10


class ByteBudget:
    """Token bucket of bytes that holds at most 10 s of its rate.

    Args:
        clock: source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spent = 0.0
        self._at = clock.monotonic()

    def take(self, size: int, rate: int) -> bool:
        """Spend bytes and return true, unless the bucket is empty; the last spending may overdraw it.

        Args:
            size: bytes to spend.
            rate: bytes added in a second.
        """
        now = self._clock.monotonic()
        self._spent = max(self._spent - (now - self._at) * rate, 0.0)
        self._at = now
        if self._spent >= rate * BURST_S:
            return False
        self._spent += size
        return True
