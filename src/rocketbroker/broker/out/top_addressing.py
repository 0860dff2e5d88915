"""Name servers from an address server over HTTP (org.apache.rocketmq.common.namesrv.DefaultTopAddressing).

``GET http://<rmqAddressServerDomain>:8080/rocketmq/<rmqAddressServerSubGroup>`` answers ``host:port;host:port``.
"""

import logging

from rocketbroker.common.config import BrokerConfig

log = logging.getLogger(__name__)

TIMEOUT_S = 3.0
DEFAULT_PORT = 8080
MAX_ANSWER = 65_536


class TopAddressing:
    """Client of the address server; logs failures when they begin, not at each attempt."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._failing = False

    @property
    def url(self) -> str:
        """URL of the list."""
        domain = self._config.rmq_address_server_domain
        host = domain if ":" in domain else f"{domain}:{DEFAULT_PORT}"
        return f"http://{host}/rocketmq/{self._config.rmq_address_server_sub_group}"

    async def fetch(self) -> list[str] | None:
        """Return the addresses of the name servers; ``None`` if the address server gives no valid answer."""
        import aiohttp  # slow, and needed only with an address server

        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self.url) as answer:
                answer.raise_for_status()
                addresses = parse_addresses(await answer.content.read(MAX_ANSWER))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            if not self._failing:
                log.error("address server %s: %s; retrying", self.url, str(error) or "no answer")  # noqa: TRY400
            self._failing = True
            return None
        self._failing = False
        return addresses


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
