"""Slaves of this broker that the name servers know, by GET_BROKER_MEMBER_GROUP (901)."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from rocketbroker.broker.out.member_group import fetch_members
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import CodecError, RemotingError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.transport.remoting_client import RemotingClient, split_address

log = logging.getLogger(__name__)

_PERIOD_S: Final = 5.0
_PAUSE_S: Final = 0.2


class KnownSlaves:
    """Asks each name server for the brokers of this broker's name. The last answer of a dead one stays.

    Args:
        config: name of broker and cluster.
        client: sends the requests.
        name_servers: returns the addresses of the name servers.

    Attributes:
        hosts: addresses of the slaves, one for each slave.
    """

    def __init__(self, config: BrokerConfig, client: RemotingClient, name_servers: Callable[[], list[str]]) -> None:
        self._config = config
        self._client = client
        self._name_servers = name_servers
        self._tasks = TaskOwner("KnownSlaves")
        self._soon = asyncio.Event()
        # Hosts by the addresses of slaves, by name server.
        self._answers: dict[str, dict[str, str]] = {}
        self.hosts: list[str] = []

    async def start(self) -> None:
        """Begin to ask."""
        self._tasks.forever(self._run, "ask")

    async def stop(self) -> None:
        """Ask no more."""
        await self._tasks.stop()

    def look_again(self) -> None:
        """Ask soon."""
        self._soon.set()

    async def _run(self) -> None:
        while True:
            self._soon.clear()
            await asyncio.gather(*map(self._ask, self._name_servers()))
            await asyncio.sleep(_PAUSE_S)
            try:
                async with asyncio.timeout(_PERIOD_S):
                    await self._soon.wait()
            except TimeoutError:
                continue

    async def _ask(self, server: str) -> None:
        try:
            addresses = await fetch_members(self._client, self._config, server)
        except (RemotingError, CodecError) as error:
            log.debug("name server %s does not name the slaves of this broker: %s", server, error)
            return
        slaves = [address for number, address in addresses.items() if number != MASTER_ID]
        self._answers[server] = {address: await self._resolve(address) for address in slaves}
        # At once: other name servers may be frozen.
        known = dict(item for each in self._name_servers() for item in self._answers.get(each, {}).items())
        self.hosts = [known[address] for address in sorted(known)]

    async def _resolve(self, address: str) -> str:
        """Return the IP address of a broker, or the host as it is if it has none."""
        try:
            host, port = split_address(address)
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (RemotingError, OSError, UnicodeError):
            return address
        return str(found[0][4][0])
