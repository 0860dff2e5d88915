"""Parts of a broker for ``enableSlaveActingMaster``: a slave that acts as master, and the return of the master."""

from concurrent.futures import Executor
from functools import partial

from rocketbroker.broker.out.broker_heartbeat import BrokerHeartbeat
from rocketbroker.broker.out.broker_outer_api import BrokerOuterApi
from rocketbroker.broker.out.broker_registration import BrokerRegistration
from rocketbroker.broker.out.master_address import Master, MasterAddress
from rocketbroker.broker.out.member_group import fetch_members
from rocketbroker.broker.slave.acting_master import ActingMaster
from rocketbroker.broker.slave.broker_pre_online import BrokerPreOnlineService, Progress
from rocketbroker.broker.slave.master_client import MasterClient
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.headers.admin import ExchangeHAInfoResponseHeader
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.lifecycle import Part
from rocketbroker.transport.remoting_client import RemotingClient

# A frozen name server delays the answers of the others by no more than this.
_FETCH_TIMEOUT_S = 1.0


class ActingParts:
    """Heartbeats, the state of an acting master, and the pre-online step of a master.

    Args:
        config: the settings of the mode.
        client: sends the requests.
        executor: decodes long answers.
        registration: makes the requests to name servers.
        outer_api: registers the broker.
        master_address: the master of a slave.
        services: run while a slave acts as master.
        progress: progress of deliveries and consumers.
        clock: checks the times of other brokers.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - it joins the network and the tables
        self,
        config: BrokerConfig,
        client: RemotingClient,
        executor: Executor,
        registration: BrokerRegistration,
        outer_api: BrokerOuterApi,
        master_address: MasterAddress,
        services: Part,
        progress: Progress,
        clock: Clock,
    ) -> None:
        self._config = config
        self._registration = registration
        self._outer_api = outer_api
        self._master_address = master_address
        fetch = partial(fetch_members, client, config, timeout_s=_FETCH_TIMEOUT_S)
        self.heartbeat = BrokerHeartbeat(
            config, client, registration, lambda: outer_api.registered_at, outer_api.register_all
        )
        self.state = ActingMaster(config, fetch, lambda: outer_api.name_servers, services)
        self._acted = False
        self.state.on_change = self._state_changed
        self.pre_online = BrokerPreOnlineService(
            config,
            outer_api.find_name_servers,
            fetch,
            lambda address: MasterClient(client, executor, lambda: address),
            self._own,
            progress,
            clock,
        )

    def has_master(self) -> bool:
        """Return true while the master of this slave answers; false while the slave acts as master."""
        return self._master_address.answers and not self.state.is_acting

    def acting_as(self) -> int | None:
        """Return the id by which consumers reach this acting master, ``None`` if it does not act."""
        return self.state.suggested_id if self.state.is_acting else None

    def own_ha_info(self) -> ExchangeHAInfoResponseHeader | None:
        """Return the addresses of this master, ``None`` for a slave."""
        if self._config.broker_id != MASTER_ID:
            return None
        own = self._own()
        return ExchangeHAInfoResponseHeader(own.ha_address, 0, own.address)

    async def master_comes(self, address: str, ha_address: str) -> None:
        """Hand over to a master that is about to register, and follow its log."""
        await self.state.master_comes()
        self._master_address.announced(Master(address, ha_address))

    def _own(self) -> Master:
        return Master(self._registration.broker_addr, self._registration.ha_server_addr)

    def _state_changed(self) -> None:
        """Register again: the answer names the master, or none."""
        if self.state.is_acting != self._acted:
            self._acted = self.state.is_acting
            # Also the one that announced itself, so that its registration counts as that of a new master.
            self._master_address.forget()
        self._outer_api.register_all()
