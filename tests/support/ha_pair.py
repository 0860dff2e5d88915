"""A master and a slave over the loopback interface, in one event loop: stores with HA port and HA client."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import TransportConfig
from rocketbroker.ha.ha_client import HAClient
from rocketbroker.ha.ha_connection import HAConnection, TransferSource
from rocketbroker.ha.ha_handshake import OPEN, HAAccess
from rocketbroker.ha.ha_service import GroupTransferService, HAService, SlaveGate
from rocketbroker.ha.master_link import LinkSecurity
from rocketbroker.store.commitlog.put_message import PutMessageResult
from rocketbroker.store.message_store import MessageStore
from rocketbroker.transport.remoting_server import bind_sockets, close_sockets, port_of
from tests.support.ports import LOOPBACK
from tests.support.stores import make_store, message

QUICK: dict[str, Any] = {"ha_send_heartbeat_interval": 50, "ha_housekeeping_interval": 5_000}


class HAMaster:
    """A running store with an HA port.

    Args:
        store: the store, which runs.
        known: hosts of the slaves that the name server knows; ``looks`` counts how often it was to be asked for them.
        port: HA port; 0 picks a free one.
        access: what slaves must prove.
        settings: protected mode.
    """

    def __init__(
        self,
        store: MessageStore,
        known: Collection[str] = (LOOPBACK,),
        port: int = 0,
        access: HAAccess = OPEN,
        **settings: Any,
    ) -> None:
        self.store = store
        self.known = known
        self.transfers = GroupTransferService(store.config)
        self._sockets = bind_sockets(LOOPBACK, port)
        self.port = port_of(self._sockets[0])
        is_synced = store.config.flush_disk_type == "SYNC_FLUSH"
        self.source = TransferSource(store.commit_log, (lambda: store.flusher.flushed_offset) if is_synced else None)
        self.looks = 0
        gate = SlaveGate[HAConnection](TransportConfig(**settings), LOOPBACK, lambda: self.known, self._look, access)
        self.service = HAService(self._sockets, store.config, self.source, store.appender, gate, self.transfers)

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def put(self, body: bytes) -> PutMessageResult:
        """Put a message; its slaves get it once this turn of the loop ends."""
        result = self.store.appender.put_message(message(body))
        self.store.appender.dispatch()
        return result

    def _look(self) -> None:
        self.looks += 1

    def close(self) -> None:
        close_sockets(self._sockets)


@asynccontextmanager
async def ha_master(
    root: Path, known: Collection[str] = (LOOPBACK,), access: HAAccess = OPEN, **settings: Any
) -> AsyncIterator[HAMaster]:
    """Start a store with an HA port, and stop both."""
    store = make_store(root, **{**QUICK, **settings})
    await store.start()
    master = HAMaster(store, known, access=access)
    await master.service.start()
    try:
        yield master
    finally:
        await master.service.stop()
        master.close()
        await store.stop()


class HASlave:
    """A running store that follows an address."""

    def __init__(self, store: MessageStore, address: str, access: HAAccess = OPEN) -> None:
        self.store = store
        self.address = address
        self.replica = store.make_replica_log()
        self.client = HAClient(
            store.config,
            lambda: self.address,
            self.replica,
            store.commit_log,
            store.flusher,
            SystemClock(),
            LinkSecurity(access=access),
        )


@asynccontextmanager
async def ha_slave(root: Path, address: str, access: HAAccess = OPEN, **settings: Any) -> AsyncIterator[HASlave]:
    """Start a store that follows the master at an address, and stop both."""
    store = make_store(root, **{**QUICK, **settings})
    await store.start()
    slave = HASlave(store, address, access)
    await slave.replica.start()
    await slave.client.start()
    try:
        yield slave
    finally:
        await slave.client.stop()
        await slave.replica.stop()
        await store.stop()
