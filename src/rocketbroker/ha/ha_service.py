"""HA port of a master: accepts slaves and sends them the log (DefaultHAService)."""

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import Final

from rocketbroker.codec.remoting.bodies.ha_runtime_info import HAConnectionRuntimeInfo, HARuntimeInfo
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.lifecycle import TICK_S, TaskOwner
from rocketbroker.ha.group_transfer_service import GroupTransferService
from rocketbroker.ha.ha_connection import HAConnection
from rocketbroker.ha.slave_gate import SlaveGate
from rocketbroker.ha.transfer_source import TransferSource
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.transport.access import RefusalLog
from rocketbroker.transport.listening_sockets import listen

log = logging.getLogger(__name__)

# Seconds between two looks at the slaves while the broker stops.
_STOP_CHECK_S: Final = 0.02
_BACKLOG: Final = 64
_MOST_CONNECTIONS: Final = 64
# Seconds in which a slave registers, and this broker hears of it.
_UNKNOWN_S: Final = 15.0
_WHY_NOT_COUNTED: Final = (
    "the name servers know no more slaves at their addresses; set brokerIP1 of a slave to the address from which it "
    "connects"
)


class HAService:
    """Slaves of a master and their connections.

    Args:
        sockets: bound sockets of the HA port.
        config: intervals and sizes.
        source: the log.
        appender: calls ``wakeup`` after messages were appended, while slaves are connected.
        gate: slaves that may connect, and those that count.
        transfers: messages that wait for slaves.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        config: MessageStoreConfig,
        source: TransferSource,
        appender: MessageAppender,
        gate: SlaveGate[HAConnection],
        transfers: GroupTransferService,
    ) -> None:
        self._sockets = sockets
        self._config = config
        self._source = source
        self._appender = appender
        self._gate = gate
        self._transfers = transfers
        self._tasks = TaskOwner("HAService")
        self._servers: list[asyncio.Server] = []
        self._is_woken = False
        self._refusals = RefusalLog(log)
        self._warned: set[HAConnection] = set()
        self.connections: list[HAConnection] = []
        transfers.ack_offsets = self._ack_offsets
        transfers.slaves = self._describe

    async def start(self) -> None:
        """Listen for slaves.

        Raises:
            ConfigError: Another process took the port after it was bound.
        """
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            # A duplicate: the service may stop and start again with the role.
            listening = sock.dup()
            listen(listening, _BACKLOG)  # uvloop would leak a socket that cannot listen
            self._servers.append(
                await loop.create_server(
                    lambda: HAConnection(self, self._source, self._config, self._tasks),
                    sock=listening,
                    backlog=_BACKLOG,
                )
            )
        # Looks at each connection: heartbeats, silence, records that no batch end announced.
        self._tasks.every(TICK_S, self._check, "check")

    async def stop(self) -> None:
        """Close the port, and all connections once the slaves have the log or ``slaveTimeout`` has passed."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        await self._send_the_rest()
        for connection in list(self.connections):
            connection.close("the broker stops, or is no longer a master")
        await self._tasks.stop()

    async def _send_the_rest(self) -> None:
        """Wait until the slaves that continue the log have all of it, at most ``slaveTimeout``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.slave_timeout / 1000
        while any(each.is_behind for each in self.connections) and loop.time() < deadline:
            self._transfer()
            await asyncio.sleep(_STOP_CHECK_S)

    def admits(self, connection: HAConnection) -> bool:
        """Return true to accept a new connection; log the reason to reject it."""
        reason = self._gate.rejects(connection.peer_host, connection.own_host)
        if not reason and len(self.connections) >= _MOST_CONNECTIONS:
            reason = f"{_MOST_CONNECTIONS} slaves are connected already"
        if reason:
            self._refusals.add(f"HAService: the connection of the slave at {connection.peer} is rejected: {reason}")
            return False
        self.connections.append(connection)
        self._appender.on_appended = self.wakeup
        self._gate.look_again()
        return True

    def gone(self, connection: HAConnection) -> None:
        """Remove a closed connection."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._warned.discard(connection)
            if not self.connections:
                self._appender.on_appended = None

    def reported(self) -> None:
        """Acknowledge the messages that enough slaves have."""
        self._transfers.reported()

    def wakeup(self) -> None:
        """Send new messages once the requests of this loop iteration are answered."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._transfer)

    def _transfer(self) -> None:
        self._is_woken = False
        for connection in list(self.connections):
            connection.transfer()

    def _check(self) -> None:
        for connection in list(self.connections):
            connection.check()
        # A slave may have become known at the name server, or a setting changed.
        self._transfers.reported()
        if self._config.broker_role == "SYNC_MASTER" and self._config.in_sync_replicas > 1:
            self._warn_of_unknown()

    def _warn_of_unknown(self) -> None:
        """Log each slave that does not count, once it had time to register."""
        counted, now = self._gate.counted(self.connections), asyncio.get_running_loop().time()
        for each in self.connections:
            if each not in counted and each not in self._warned and now - each.begun_at > _UNKNOWN_S:
                self._warned.add(each)
                log.warning(
                    "HAService: no send waits for the slave at %s (inSyncReplicas): %s", each.peer, _WHY_NOT_COUNTED
                )

    def _describe(self) -> str:
        """Return the numbers of connected slaves and of those that count."""
        connected, counted = len(self.connections), len(self._gate.counted(self.connections))
        reason = f": {_WHY_NOT_COUNTED}" if counted < connected else ""
        return f"connected slaves: {connected}, of which count: {counted}{reason}"

    def _ack_offsets(self) -> list[int]:
        """Return the reports of the slaves that count for acknowledgement."""
        return [each.ack_offset for each in self._gate.counted(self.connections)]

    def runtime_info(self) -> HARuntimeInfo:
        """Return the state of the slaves for GET_BROKER_HA_STATUS."""
        slaves = [self._slave_info(each) for each in self.connections]
        return HARuntimeInfo(True, self._source.log_end, sum(slave.in_sync for slave in slaves), slaves)

    def _slave_info(self, slave: HAConnection) -> HAConnectionRuntimeInfo:
        behind = self._source.log_end - slave.ack_offset
        is_in_sync = slave.ack_offset >= 0 and behind < self._config.ha_max_gap_not_in_sync
        return HAConnectionRuntimeInfo(
            slave.peer, slave.ack_offset, behind, is_in_sync, slave.bytes_per_s, slave.next_offset
        )
