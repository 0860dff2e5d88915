"""Replication of a broker: its roles and the parts that run in each, the log of master and slave, the acting master."""

import logging
import socket
from collections.abc import Collection, Sequence
from concurrent.futures import Executor
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

from rocketbroker.broker.registration.broker_outer_api import OuterNetwork
from rocketbroker.broker.registration.broker_registration import (
    BrokerHeartbeat,
    KnownSlaves,
    fetch_members,
)
from rocketbroker.broker.registration.namesrv_link import Master
from rocketbroker.broker.slave.acting_master import ActingMaster, BrokerPreOnlineService, Progress
from rocketbroker.broker.slave.master_client import MasterClient
from rocketbroker.codec.remoting.bodies.offset import HARuntimeInfo
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.headers.admin import ExchangeHAInfoResponseHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.load import BrokerSettings
from rocketbroker.common.errors import BrokerResponseError, ConfigError
from rocketbroker.common.lifecycle import Part, stop_all
from rocketbroker.ha.ha_client import HAClient
from rocketbroker.ha.ha_connection import TransferSource
from rocketbroker.ha.ha_handshake import HAAccess
from rocketbroker.ha.ha_service import GroupTransferService, HAService, SlaveGate
from rocketbroker.ha.master_link import LinkSecurity
from rocketbroker.store.message_store import MessageStore
from rocketbroker.transport.remoting_server import bind_sockets

log = logging.getLogger(__name__)


class BrokerRole(Enum):
    """Roles in replication (org.apache.rocketmq.store.config.BrokerRole)."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


MASTER: Final = frozenset({BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER})
SYNC_MASTER: Final = frozenset({BrokerRole.SYNC_MASTER})
SLAVE: Final = frozenset({BrokerRole.SLAVE})
ANY_ROLE: Final = frozenset(BrokerRole)


class RoleParts:
    """Starts parts in order and stops them in reverse order, each while the broker has one of its roles.

    Parts may ask for the role, so this exists before them: it is created first, and ``arrange`` gets the parts.

    Args:
        parts: pairs of roles and the part that runs in them, if they exist already.

    Attributes:
        role: the current role, ``None`` before the start and after the stop.
    """

    def __init__(self, *parts: tuple[Collection[BrokerRole], Part]) -> None:
        self._parts = parts
        self._running: list[Part] = []
        self.role: BrokerRole | None = None

    @property
    def is_master(self) -> bool:
        """True while the broker runs as a master."""
        return self.role in MASTER

    def arrange(self, *parts: tuple[Collection[BrokerRole], Part]) -> None:
        """Set the parts in the order of their start: the second step, before the first role is taken."""
        self._parts = parts

    async def take_role(self, role: BrokerRole) -> None:
        """Stop the parts that the role does not run, then start those that it needs; an error skips the rest."""
        await self._stop([part for roles, part in self._parts if role not in roles])
        for roles, part in self._parts:
            if role in roles and part not in self._running:
                await part.start()
                self._running.append(part)
        self.role = role

    async def stop(self) -> None:
        """Stop all parts."""
        self.role = None
        await self._stop([part for _, part in self._parts])

    async def _stop(self, parts: Collection[Part]) -> None:
        """Stop parts in reverse order, also if the caller is cancelled; log an error and stop the others."""
        await stop_all(*(partial(self._stop_part, part) for part in reversed(list(parts))))

    async def _stop_part(self, part: Part) -> None:
        if part in self._running:
            self._running.remove(part)
            try:
                await part.stop()
            except Exception:
                log.exception("%s did not stop cleanly", type(part).__name__)


class HAPort(NamedTuple):
    """HA port of a broker.

    Attributes:
        sockets: its bound sockets; none for a slave.
        access: what a broker and the other end of a replication link prove to each other.
    """

    sockets: Sequence[socket.socket]
    access: HAAccess


class BrokerReplication:
    """HA service and HA client of a broker.

    Args:
        settings: all settings.
        port: the HA port.
        store: the store.
        transfers: the wait of messages for slaves.
        network: name servers, which name slaves and the master, and TLS.
        roles: the role of the broker.
        clock: source of the time.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        port: HAPort,
        store: MessageStore,
        transfers: GroupTransferService,
        network: OuterNetwork,
        roles: RoleParts,
        clock: Clock,
    ) -> None:
        config, is_synced = settings.store, settings.store.flush_disk_type == "SYNC_FLUSH"
        known = KnownSlaves(settings.broker, network.client, network.outer_api.name_servers)
        self._known_slaves, self._roles = known, roles
        self.replica_log = store.make_replica_log()
        self.service = HAService(
            port.sockets,
            config,
            TransferSource(store.commit_log, (lambda: store.flusher.flushed_offset) if is_synced else None),
            store.appender,
            SlaveGate(
                settings.transport, settings.broker.broker_ip1, lambda: known.hosts, known.look_again, port.access
            ),
            transfers,
            network.tls.server,
        )
        self.client = HAClient(
            config,
            network.master_address.ha_address,
            self.replica_log,
            store.commit_log,
            store.flusher,
            clock,
            LinkSecurity(network.tls.outgoing, port.access),
        )

    @property
    def parts(self) -> list[tuple[Collection[BrokerRole], Part]]:
        """Parts that start after the broker is registered, and their roles."""
        return [(SYNC_MASTER, self._known_slaves), (SLAVE, self.client)]

    def runtime_info(self) -> HARuntimeInfo:
        """Return the state of replication."""
        return self.service.runtime_info() if self._roles.is_master else self.client.runtime_info()

    def problem(self) -> str:
        """Return the reason why this slave does not follow its master, empty if it does."""
        return self.client.problem if self._roles.role in SLAVE else ""


def bind_ha(settings: BrokerSettings, *, any_port: bool) -> list[socket.socket]:
    """Bind the HA port of a master, or with ``any_port`` a free one if it is in use; a slave has none.

    Raises:
        ConfigError: The port is in use.
    """
    if BrokerRole(settings.store.broker_role) in SLAVE:
        return []
    address, port = settings.transport.bind_address, settings.store.ha_listen_port
    try:
        return bind_sockets(address, port, exclusive=any_port)
    except ConfigError as error:
        if any_port:
            return bind_sockets(address, 0)
        raise ConfigError(f"{error}. Port {port} is for slaves (haListenPort)") from error


# A frozen or unreachable name server delays the answers of the others by no more than this.
_FETCH_TIMEOUT_S: Final = 1.0
# Time that a slave takes at most to compare its log with that of a master that announces itself.
_COMPARE_S: Final = 5.0


class ActingParts:
    """Heartbeats, the state of an acting master, and the pre-online step of a master.

    Args:
        config: the settings of the mode.
        network: name servers and other brokers.
        executor: decodes long answers.
        ha_client: copies the master's log to a slave.
        services: run while a slave acts as master.
        progress: progress of deliveries and consumers.
        clock: checks the times of other brokers.
    """

    def __init__(
        self,
        config: BrokerConfig,
        network: OuterNetwork,
        executor: Executor,
        ha_client: HAClient,
        services: Part,
        progress: Progress,
        clock: Clock,
    ) -> None:
        self._config = config
        self._registration = network.registration
        self._outer_api = outer_api = network.outer_api
        self._master_address = network.master_address
        client = network.client
        self._ha_client = ha_client
        fetch = partial(fetch_members, client, config, timeout_s=_FETCH_TIMEOUT_S)
        self.heartbeat = BrokerHeartbeat(
            config, client, network.registration, outer_api.registered_at, outer_api.register_all
        )
        self.state = ActingMaster(config, fetch, outer_api.name_servers, services, lambda: ha_client.is_fed)
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
