"""What a server says at its start of those who may use it."""

import ipaddress


def trust_notice(what: str, bind_address: str, port: int) -> str | None:
    """A sentence for the operator, ``None`` when only this machine can reach the port."""
    if _is_loopback(bind_address):
        return None
    return (
        f"{what}: access control is off, so anyone who can reach {bind_address or '0.0.0.0'}:{port} is trusted; "  # noqa: S104
        "set bindAddress or a firewall to limit who can"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
