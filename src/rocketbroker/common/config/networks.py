"""Lists of addresses and networks, such as those of adminWhiteList."""

import ipaddress
from functools import lru_cache
from typing import TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


@lru_cache(maxsize=16)
def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse a list of networks joined by ``;`` or ``,``; a single address is a network of one.

    Raises:
        ValueError: An entry is neither an address nor a network in CIDR notation, or it can match no peer.
    """
    return tuple(_network(entry.strip()) for entry in text.replace(",", ";").split(";") if entry.strip())


def _network(entry: str) -> Network:
    network = ipaddress.ip_network(entry)
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise ValueError("IPv4 peers are compared as IPv4; give the IPv4 network")
    return network


def parse_address(host: str) -> IpAddress | None:
    """Parse an address for comparison: drop the zone, and turn IPv4 mapped into IPv6 to IPv4.

    Return None for other text.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def contains(networks: tuple[Network, ...], address: IpAddress) -> bool:
    """Return true if one of the networks contains the address."""
    return any(address in network for network in networks)
