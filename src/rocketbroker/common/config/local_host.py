"""Address and name of this machine (NetworkUtil.getLocalAddress, BrokerConfig.localHostName)."""

import socket

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
