"""Bound of what an address costs whose connections fail: it gets few new ones, and the others end unread.

A connection *fails* if its peer breaks the protocol, ends a TLS handshake badly, or has no valid credentials for a
request, whatever else it sends; it counts once. To find that out takes a server 150 to 350 µs of CPU. So a thousand of
them a second would take a third of a core from the peers that are served.

An address is *failing* once it has failed ``FREE`` times more than ``LEAK`` a second. Of its new connections ``PACE`` a
second are served, after ``BURST`` at once; the others are closed as soon as they are accepted, before anything is made
for them, which takes some 35 µs, most of it in the kernel and the event loop. ``MOST`` bounds the debt, so that an
address that stops failing is served as any other within (MOST - FREE) / LEAK = 5 s.

Which connections are served is a matter of chance: nothing tells a good peer from a bad one before it has sent
something. Good peers may share the address of a bad one, be it a gateway, a load balancer or this machine. So ``PACE``
is as high as its cost allows, some 3 % of a core: one client in a loop of errors rarely begins a hundred connections a
second, so it keeps nobody out, and beside a thousand a second every tenth try succeeds.

Connections that are open are not limited. Nor are peers that only connect and leave, such as probes of a load balancer:
without a byte nothing has failed. A thousand clients behind one gateway that restart do not fail either, and those with
an expired secret count once for each connection, not for each request. No peer is exempt: a proxy may stand on the same
machine, in front of everybody.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final, cast

from rocketbroker.codec.message.message_id import host_bytes, join_address
from rocketbroker.common.address_debts import AddressDebts
from rocketbroker.common.address_shares import address_key

log = logging.getLogger(__name__)

#: Failures of an address, beyond those that time has taken away, that cost it nothing.
FREE: Final = 200
#: Failures that a second takes away. Fewer than ``handshake_limits`` lets a failing address begin handshakes, or those
#: that fail at once would make the debt shrink and open the port again and again.
LEAK: Final = 5.0
MOST: Final = FREE + 25.0
#: New connections of a failing address that are served in a second, and at once after a pause.
PACE: Final = 100.0
BURST: Final = 25
_LOG_S: Final = 10.0


def peer_key(peer: object) -> bytes:
    """Return the key of a peer's address, as ``getpeername`` returns it; IPv6 addresses count by network."""
    return _host_key(peer[0]) if isinstance(peer, tuple) else b""


# Each new connection asks for it as soon as one of anybody has failed.
@lru_cache(maxsize=1024)
def _host_key(host: str) -> bytes:
    return address_key(host_bytes(host.removeprefix("::ffff:"), 0))


class FailedConnections:
    """Failed connections by address, on the ports of one server.

    Args:
        time: a clock that never goes back, in seconds.

    Attributes:
        count: number of failed connections.
        rejected: number of connections that were closed unread.
    """

    def __init__(self, time: Callable[[], float] = time.monotonic) -> None:
        self._time = time
        self._failures = AddressDebts(LEAK, MOST)
        self._begun = AddressDebts(PACE, BURST)
        # The host that was rejected last, and when it gets its next connection: a flood costs one comparison each.
        self._rejected_host = ""
        self._rejected_until = 0.0
        self.count = self.rejected = 0
        self._logged = 0
        self._log_at = float("-inf")

    def add(self, key: bytes) -> None:
        """Count a failed connection."""
        self.count += 1
        self._failures.add(key, self._time())

    def is_failing(self, key: bytes) -> bool:
        """Return true for an address that has failed too often lately."""
        return self._failures.of(key, self._time()) > FREE

    def admits(self, peer: tuple[str, int]) -> bool:
        """Return false to close a new connection unread.

        Args:
            peer: address of the peer, as ``getpeername`` returns it.
        """
        # Most servers never have a failure.
        if not self._failures:
            return True
        now = self._time()
        if peer[0] == self._rejected_host and now < self._rejected_until:
            self.rejected += 1
            return False
        key = peer_key(peer)
        if self._failures.of(key, now) <= FREE:
            return True
        wait_s = (self._begun.of(key, now) - (BURST - 1)) / PACE
        if wait_s <= 0:
            self._begun.add(key, now)
            return True
        self._rejected_host, self._rejected_until = peer[0], now + wait_s
        self.rejected += 1
        if now >= self._log_at:
            self._log_at = now + _LOG_S
            log.warning(
                "connection from %s closed unread: too many of its address fail, by handshakes, credentials or broken "
                "frames. While they do, %g new ones a second are served; closed since the last such line: %d",
                join_address(*peer[:2]),
                PACE,
                self.rejected - self._logged,
            )
            self._logged = self.rejected
        return False


class _Admission(asyncio.Protocol):
    """Protocol of all new connections of a port, each until its address is known; then its own protocol takes over."""

    def __init__(self, failed: FailedConnections, make: Callable[[], asyncio.BaseProtocol]) -> None:
        self._failed = failed
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection over, or end it."""
        peer = transport.get_extra_info("peername")
        # One that is gone already has no address.
        if peer and self._failed.admits(peer):
            try:
                protocol = self._make()
            except BaseException:
                # The event loop logs it, and nobody else would ever close the connection.
                cast("asyncio.Transport", transport).abort()
                raise
            # Before anything is read: event loops choose by the protocol into whose memory they read.
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
        else:
            cast("asyncio.Transport", transport).abort()


def admitting(failed: FailedConnections, make: Callable[[], asyncio.BaseProtocol]) -> Callable[[], asyncio.Protocol]:
    """Return the factory of a port that makes protocols for admitted peers alone.

    To make one costs more than all the rest of a connection that is closed at once.

    Args:
        failed: decides.
        make: makes the protocol of a connection.
    """
    admission = _Admission(failed, make)
    return lambda: admission
