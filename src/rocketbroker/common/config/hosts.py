"""Addresses of this machine and of named hosts, and the networks of adminWhiteList and brokerWhiteList."""

import ipaddress
import socket
from functools import lru_cache
from ipaddress import ip_address
from typing import TypeAlias

from rocketbroker.common.errors import ConfigError

LOOPBACK = "127.0.0.1"

# Connecting a UDP socket sends nothing: the system only chooses the route, and so the address that peers see.
_OUTSIDE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def local_address() -> str:
    """Return the address of the interface that leads outside, else the loopback address."""
    for family, target in _OUTSIDE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return LOOPBACK


def local_name() -> str:
    """Return the host name with invalid characters of a broker name as `-`, or `DEFAULT_BROKER` if there is no name."""
    name = "".join(
        char if char.isascii() and (char.isalnum() or char in "_-.") else "-" for char in socket.gethostname()
    )
    return name[:127] if name.strip(".") else "DEFAULT_BROKER"


def host_address(host: str) -> str:
    """Return the IP address of a host; a name is looked up, IPv4 first.

    Raises:
        ConfigError: The text is neither an address nor a name that can be looked up.
    """
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{host!r} is neither an IP address nor a known host: {cause}") from error
    addresses = sorted(found, key=lambda each: each[0] != socket.AF_INET)
    return str(addresses[0][4][0])


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
