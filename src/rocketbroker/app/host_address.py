"""Addresses of hosts, which brokers register and messages hold (InetSocketAddress of RocketMQ)."""

import socket
from ipaddress import ip_address

from rocketbroker.common.errors import ConfigError


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
