"""Name servers from an address server over HTTP (org.apache.rocketmq.common.namesrv.DefaultTopAddressing)."""

import ssl

from rocketbroker.common.errors import ConfigError, RemotingError

_TIMEOUT_S = 3.0
_MAX_ANSWER = 65_536


def require_http(what: str) -> None:
    """Import what requests and answers need: a quarter of a second that few processes spend.

    Args:
        what: setting or address that needs it.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"{what} needs the package 'aiohttp': pip install 'rocketbroker[http]'") from error


async def fetch_name_servers(url: str, tls: ssl.SSLContext | None = None) -> list[str]:
    """Return the addresses of the name servers, which the server answers as ``host:port;host:port``.

    Args:
        url: of the address server.
        tls: settings for ``https``; those of the system by default.

    Raises:
        RemotingError: No valid answer; the text says why.
        ConfigError: The extra for HTTP is not installed.
    """
    require_http(f"the address server {url}")
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, ssl=tls or True) as answer:
            answer.raise_for_status()
            return parse_addresses(await answer.content.read(_MAX_ANSWER))
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise RemotingError(f"address server {url}: {str(error) or 'no answer'}") from error


def parse_addresses(answer: bytes) -> list[str]:
    """Return the addresses in a text like ``host:port;host:port``.

    Raises:
        ValueError: One of them is not an address; the text names it.
    """
    addresses = [part.strip() for part in answer.decode("ascii", "replace").split(";") if part.strip()]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port[:6]) < 65536:
            raise ValueError(f"it answers {address[:64]!r} instead of host:port;host:port")
    return addresses
