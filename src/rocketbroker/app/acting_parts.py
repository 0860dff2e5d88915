"""Parts of a broker for ``enableSlaveActingMaster``: a slave that acts as master, and the return of the master."""

from concurrent.futures import Executor
from functools import partial
from typing import Final

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
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.common.lifecycle import Part
from rocketbroker.ha.ha_client import HAClient
from rocketbroker.transport.remoting_client import RemotingClient

# A frozen or unreachable name server delays the answers of the others by no more than this.
_FETCH_TIMEOUT_S: Final = 1.0
# Time that a slave takes at most to compare its log with that of a master that announces itself.
_COMPARE_S: Final = 5.0


class ActingParts:
    """Heartbeats, the state of an acting master, and the pre-online step of a master.

    Args:
        config: the settings of the mode.
        client: sends the requests.
        executor: decodes long answers.
        registration: makes the requests to name servers.
        outer_api: registers the broker.
        master_address: the master of a slave.
        ha_client: copies the master's log to a slave.
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
        ha_client: HAClient,
        services: Part,
        progress: Progress,
        clock: Clock,
    ) -> None:
        self._config = config
        self._registration = registration
        self._outer_api = outer_api
        self._master_address = master_address
        self._ha_client = ha_client
        fetch = partial(fetch_members, client, config, timeout_s=_FETCH_TIMEOUT_S)
        self.heartbeat = BrokerHeartbeat(
            config, client, registration, lambda: outer_api.registered_at, outer_api.register_all
        )
        self.state = ActingMaster(config, fetch, lambda: outer_api.name_servers, services, lambda: ha_client.is_fed)
        self._acted = False
        self.state.on_change = self._state_changed
        self.pre_online = BrokerPreOnlineService(
            config,
            outer_api.find_name_servers,
            fetch,
            lambda address: MasterClient(client, executor, lambda: address),
            self._own_addresses,
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
        own = self._own_addresses()
        return ExchangeHAInfoResponseHeader(own.ha_address, 0, own.address)

    async def hand_over(self, master: Master) -> None:
        """Hand over to a master that is about to register, once its log is known to have all of this one.

        Raises:
            BrokerResponseError: REQUEST_CODE_NOT_SUPPORTED without ``enableSlaveActingMaster``; INVALID_PARAMETER if a
                name server names another master; SYSTEM_ERROR if the log differs or was not compared in time.
        """
        if not self._config.enable_slave_acting_master:
            remark = "enableSlaveActingMaster is false: this slave never acts as master"
            raise BrokerResponseError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        if not self._master_address.announce(master):
            remark = (
                f"{master.address} cannot be the master of this slave, which is {self._master_address.master.address}"
            )
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        await self.state.hand_over()
        self._ha_client.compare_again()
        if not await self._ha_client.is_compared(_COMPARE_S):
            problem = self._ha_client.problem or "the master sends nothing"
            remark = f"the log of {master.ha_address} is not known to have all messages of this slave: {problem}"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)

    def _own_addresses(self) -> Master:
        return Master(self._registration.broker_addr, self._registration.ha_server_addr)

    def _state_changed(self) -> None:
        """Register again: the answer names the master, or none."""
        if self.state.is_acting != self._acted:
            self._acted = self.state.is_acting
            # Also the one that announced itself, so that its registration counts as that of a new master.
            self._master_address.forget()
        self._outer_api.register_all()
