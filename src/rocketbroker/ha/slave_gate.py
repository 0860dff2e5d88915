"""Slaves that may connect to the HA port, and those that count for acknowledgement.

A connection to the port proves nothing. In protected mode only addresses of brokerWhiteList may connect from other
machines, and only slaves that a name server knows count: as many connections of a host as slaves are registered there.
Without it one connection of each host counts, and more only if the name servers know more: a slave that reconnects has
two connections for a while.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Generic, Protocol, TypeVar

from rocketbroker.codec.remoting.audience import Audience
from rocketbroker.common.config import TransportConfig
from rocketbroker.common.config.networks import parse_address
from rocketbroker.transport.access import ProtectedMode, is_this_machine


class Peer(Protocol):
    """Connection of a slave."""

    @property
    def peer_host(self) -> str: ...
    @property
    def own_host(self) -> str: ...


P = TypeVar("P", bound=Peer)


class SlaveGate(Generic[P]):
    """Decides about peers by their addresses.

    Args:
        config: protected mode and its white lists.
        own_host: address of this broker as registered.
        known_hosts: returns the hosts of the slaves of this broker that the name servers know, one for each slave.
        look_again: has the name servers asked for slaves soon.
    """

    def __init__(
        self,
        config: TransportConfig,
        own_host: str,
        known_hosts: Callable[[], Collection[str]],
        look_again: Callable[[], None],
    ) -> None:
        self._config = config
        self._admit = ProtectedMode(config)
        self._own_host = own_host
        self._known_hosts = known_hosts
        self._counted_for: object = None
        self._counted: list[P] = []
        self.look_again = look_again

    def rejects(self, peer: str, own: str) -> str:
        """Return the reason why a peer may not connect, empty if it may."""
        if self._admit(peer, own) >= Audience.BROKER:
            return ""
        return "protectedMode: its address is not in brokerWhiteList; add it there, or set protectedMode=false"

    def counted(self, peers: Sequence[P]) -> list[P]:
        """Return the connections that count for acknowledgement, the newest of each host."""
        # Each report asks, and the answer changes with the connections only.
        state = (tuple(peers), tuple(self._known_hosts()), self._config.protected_mode)
        if state != self._counted_for:
            self._counted_for, self._counted = state, self._count(peers)
        return self._counted

    def _count(self, peers: Sequence[P]) -> list[P]:
        left = Counter(self._place(host, self._own_host) for host in self._known_hosts())
        if not self._config.protected_mode:
            left |= Counter({self._place(peer.peer_host, peer.own_host) for peer in peers})
        found = []
        for peer in reversed(peers):
            place = self._place(peer.peer_host, peer.own_host)
            if left[place] > 0:
                left[place] -= 1
                found.append(peer)
        return found

    @staticmethod
    def _place(host: str, own: str) -> str:
        """Return one name for all addresses of this machine, and the address itself for others."""
        return "" if is_this_machine(host, own) else str(parse_address(host) or host)
