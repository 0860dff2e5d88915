"""Heartbeats of a broker between two registrations (BrokerController.scheduleSendHeartbeat)."""

import asyncio
import logging
from collections.abc import Callable

from rocketbroker.broker.out.broker_registration import BrokerRegistration
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import RemotingError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.transport.remoting_client import RemotingClient

log = logging.getLogger(__name__)


class BrokerHeartbeat:
    """Sends BROKER_HEARTBEAT with ``enableSlaveActingMaster``, so that a dead master is noticed within seconds.

    A name server forgets a broker whose connection closes, and closes that of a silent one: then all is registered
    again.

    Args:
        config: ``enableSlaveActingMaster``, ``brokerHeartbeatInterval``.
        client: sends the requests.
        registration: makes them.
        name_servers: returns the name servers that this broker is registered at.
        register: registers this broker again.
    """

    def __init__(
        self,
        config: BrokerConfig,
        client: RemotingClient,
        registration: BrokerRegistration,
        name_servers: Callable[[], list[str]],
        register: Callable[[], object],
    ) -> None:
        self._config = config
        self._client = client
        self._registration = registration
        self._name_servers = name_servers
        self._register = register
        self._tasks = TaskOwner("BrokerHeartbeat")

    async def start(self) -> None:
        """Start sending."""
        if self._config.enable_slave_acting_master:
            self._tasks.every(self._config.broker_heartbeat_interval / 1000, self._send_all, "send")

    async def stop(self) -> None:
        """Stop sending."""
        await self._tasks.stop()

    async def _send_all(self) -> None:
        await asyncio.gather(*map(self._send, self._name_servers()))

    async def _send(self, name_server: str) -> None:
        if not self._client.is_connected(name_server):
            self._register()
            return
        try:
            await self._client.invoke_oneway(name_server, self._registration.heartbeat())
        except RemotingError as error:
            log.debug("name server %s gets no heartbeat: %s", name_server, error)
