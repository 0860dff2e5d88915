"""Slaves that may connect to the HA port, and those that count for acknowledgement.

A connection to the port proves nothing. In protected mode only addresses of brokerWhiteList may connect from other
machines, and only slaves that a name server knows count: as many connections of a host as slaves are registered there.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

from rocketbroker.common.config import TransportConfig
from rocketbroker.common.config.networks import contains, parse_address, parse_networks


class Peer(Protocol):
    """Connection of a slave."""

    @property
    def peer_host(self) -> str: ...
    @property
    def own_host(self) -> str: ...


P = TypeVar("P", bound=Peer)


class SlaveGate:
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
        self._own_host = own_host
        self._known_hosts = known_hosts
        self.look_again = look_again

    def rejects(self, peer: str, own: str) -> str:
        """Return the reason why a peer may not connect, empty if it may."""
        config = self._config
        if not config.protected_mode or self._is_here(peer, own):
            return ""
        address = parse_address(peer)
        lists = (config.broker_white_list, config.admin_white_list)
        if address is not None and any(contains(parse_networks(each), address) for each in lists):
            return ""
        return "protectedMode: its address is not in brokerWhiteList; add it there, or set protectedMode=false"

    def counted(self, peers: Sequence[P]) -> list[P]:
        """Return the connections that count for acknowledgement, the newest of each host."""
        if not self._config.protected_mode:
            return list(peers)
        left = Counter(self._place(host, self._own_host) for host in self._known_hosts())
        found = []
        for peer in reversed(peers):
            place = self._place(peer.peer_host, peer.own_host)
            if left[place] > 0:
                left[place] -= 1
                found.append(peer)
        return found

    def _place(self, host: str, own: str) -> str:
        """Return one name for all addresses of this machine, and the address itself for others."""
        return "" if self._is_here(host, own) else str(parse_address(host) or host)

    @staticmethod
    def _is_here(peer: str, own: str) -> bool:
        address = parse_address(peer)
        return address is not None and (address.is_loopback or address == parse_address(own))
