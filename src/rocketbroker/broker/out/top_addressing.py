"""Name servers from an address server over HTTP (org.apache.rocketmq.common.namesrv.DefaultTopAddressing).

``GET http://<rmqAddressServerDomain>:8080/rocketmq/<rmqAddressServerSubGroup>`` answers ``host:port;host:port``.
"""

import logging

from rocketbroker.common.address_server_client import fetch_name_servers
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import RemotingError

log = logging.getLogger(__name__)

DEFAULT_PORT = 8080


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
        try:
            addresses = await fetch_name_servers(self.url)
        except RemotingError as error:
            if not self._failing:
                log.error("%s; retrying", error)  # noqa: TRY400
            self._failing = True
            return None
        self._failing = False
        return addresses
