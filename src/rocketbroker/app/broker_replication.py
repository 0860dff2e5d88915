"""Parts of a broker that replicate its CommitLog, as a master or as a slave."""

import socket
from collections.abc import Callable, Collection, Sequence

from rocketbroker.app.role_parts import SLAVE, SYNC_MASTER, BrokerRole
from rocketbroker.broker.out.known_slaves import KnownSlaves
from rocketbroker.codec.remoting.bodies.ha_runtime_info import HARuntimeInfo
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.load import BrokerSettings
from rocketbroker.common.errors import ConfigError
from rocketbroker.common.lifecycle import Part
from rocketbroker.ha.group_transfer_service import GroupTransferService
from rocketbroker.ha.ha_client import HAClient
from rocketbroker.ha.ha_service import HAService
from rocketbroker.ha.slave_gate import SlaveGate
from rocketbroker.ha.transfer_source import TransferSource
from rocketbroker.store.message_store import MessageStore
from rocketbroker.transport.listening_sockets import bind_sockets
from rocketbroker.transport.remoting_client import RemotingClient


class BrokerReplication:
    """HA service and HA client of a broker.

    Args:
        settings: all settings.
        sockets: the bound sockets of the HA port; none for a slave.
        store: the store.
        transfers: the wait of messages for slaves.
        client: asks the name servers.
        name_servers: returns their addresses.
        master: returns the HA address of the master that they name, empty without one.
        clock: source of the time.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - it joins the network and the store
        self,
        settings: BrokerSettings,
        sockets: Sequence[socket.socket],
        store: MessageStore,
        transfers: GroupTransferService,
        client: RemotingClient,
        name_servers: Callable[[], list[str]],
        master: Callable[[], str],
        clock: Clock,
    ) -> None:
        config, is_synced = settings.store, settings.store.flush_disk_type == "SYNC_FLUSH"
        known = KnownSlaves(settings.broker, client, name_servers)
        self._known_slaves = known
        self.replica_log = store.make_replica_log()
        self.service = HAService(
            sockets,
            config,
            TransferSource(store.commit_log, (lambda: store.flusher.flushed_offset) if is_synced else None),
            store.appender,
            SlaveGate(settings.transport, settings.broker.broker_ip1, lambda: known.hosts, known.look_again),
            transfers,
        )
        self.client = HAClient(config, master, self.replica_log, store.commit_log, store.flusher, clock)

    @property
    def parts(self) -> list[tuple[Collection[BrokerRole], Part]]:
        """Parts that start after the broker is registered, and their roles."""
        return [(SYNC_MASTER, self._known_slaves), (SLAVE, self.client)]

    def runtime_info(self, *, is_master: bool) -> HARuntimeInfo:
        """Return the state of replication."""
        return self.service.runtime_info() if is_master else self.client.runtime_info()


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
