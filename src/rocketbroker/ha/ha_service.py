"""HA port of a master: accepts slaves, sends them the log, and acknowledges what enough of them have.

The counterpart of DefaultHAService and GroupTransferService.
"""

import asyncio
import logging
import socket
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from rocketbroker.codec.remoting.bodies.offset import HAConnectionRuntimeInfo, HARuntimeInfo
from rocketbroker.codec.remoting.handler import Audience
from rocketbroker.common.config import MessageStoreConfig, TransportConfig
from rocketbroker.common.config.hosts import parse_address
from rocketbroker.common.event_log import RefusalLog
from rocketbroker.common.lifecycle import TICK_S, TaskOwner
from rocketbroker.ha.ha_connection import HAConnection, TransferSource
from rocketbroker.ha.ha_handshake import OPEN, HAAccess
from rocketbroker.store.commitlog.put_message import (
    ACKNOWLEDGED,
    Acknowledgement,
    OnAcknowledged,
    PutMessageResult,
    PutMessageStatus,
)
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.transport.access import ProtectedMode, is_this_machine
from rocketbroker.transport.failed_connections import admitting
from rocketbroker.transport.remoting_server import close_servers, listen
from rocketbroker.transport.tls_transport import FirstByte, ServerTls

log = logging.getLogger(__name__)


class Peer(Protocol):
    """Connection of a slave."""

    @property
    def peer_host(self) -> str: ...
    @property
    def own_host(self) -> str: ...


P = TypeVar("P", bound=Peer)


# A connection to the port proves nothing without access control, and a stranger who is counted would acknowledge
# messages that nobody keeps. In protected mode only addresses of brokerWhiteList may connect from other machines, and
# only slaves that a name server knows count: as many connections of a host as slaves are registered there. Without it
# one connection of each host counts, and more only if the name servers know more: a slave that reconnects has two
# connections for a while.
class SlaveGate(Generic[P]):
    """Decides by their addresses which slaves may connect to the HA port, and which count for acknowledgement.

    Args:
        known_hosts: returns the hosts of the slaves of this broker that the name servers know, one for each slave.
        look_again: has the name servers asked for slaves soon.
        access: what a slave must prove once it is connected.
    """

    def __init__(
        self,
        config: TransportConfig,
        own_host: str,
        known_hosts: Callable[[], Collection[str]],
        look_again: Callable[[], None],
        access: HAAccess = OPEN,
    ) -> None:
        self._config = config
        self._admit = ProtectedMode(config)
        self._own_host = own_host
        self._known_hosts = known_hosts
        self._counted_for: object = None
        self._counted: list[P] = []
        self.look_again = look_again
        self.access = access

    def rejects(self, peer: str, own: str) -> str:
        """Return the reason why a peer may not connect, empty if it may."""
        if self._admit(peer, own) >= Audience.BROKER:
            return ""
        return "protectedMode: its address is not in brokerWhiteList; add it there, or set protectedMode=false"

    def counted(self, peers: Sequence[P]) -> list[P]:
        """Return the connections that count for acknowledgement, the newest of each host."""
        # Each report asks, and the answer changes with the connections only.
        state = (tuple(peers), tuple(self._known_hosts()), self._config.protected_mode)
        if state != self._counted_for:
            self._counted_for, self._counted = state, self._count(peers)
        return self._counted

    def _count(self, peers: Sequence[P]) -> list[P]:
        left = Counter(self._place(host, self._own_host) for host in self._known_hosts())
        if not self._config.protected_mode:
            left |= Counter({self._place(peer.peer_host, peer.own_host) for peer in peers})
        found = []
        for peer in reversed(peers):
            place = self._place(peer.peer_host, peer.own_host)
            if left[place] > 0:
                left[place] -= 1
                found.append(peer)
        return found

    @staticmethod
    def _place(host: str, own: str) -> str:
        """Return one name for all addresses of this machine, and the address itself for others."""
        return "" if is_this_machine(host, own) else str(parse_address(host) or host)


class _Wait(NamedTuple):
    """Wait for ``needed`` slaves to have the log up to a CommitLog offset; ``begun`` is in loop time."""

    needed: int
    end: int
    begun: float
    on_acknowledged: OnAcknowledged


# ``inSyncReplicas`` brokers must have a message before it is acknowledged, the master included. A slave has it once it
# has reported an offset at or after its end: the log is one sequence, so that a report covers all before it. Of the
# slaves that count, the n-th highest report is what n slaves have.
#
# How many slaves a message needs is decided when it is put, and stays: with ``enableAutoInSyncReplicas`` a slave that
# goes would otherwise take back the demand of the messages that wait for it, and they would be acknowledged with fewer
# copies than their producer was to have. So messages that need different numbers wait at the same time. Those of one
# number are in the order of their offsets and of their begin: reports and deadlines both end them from the front.
class GroupTransferService:
    """Acknowledges messages that ``inSyncReplicas`` brokers have, the master included.

    Attributes:
        ack_offsets: returns the offset up to which each slave that counts has the log.
        log_end: returns the offset after the last message of the master.
        slaves: returns a text with the numbers of slaves.
    """

    def __init__(self, config: MessageStoreConfig) -> None:
        self._config = config
        self.ack_offsets: Callable[[], Sequence[int]] = tuple
        self.log_end: Callable[[], int] = int
        self.slaves: Callable[[], str] = str
        # By the number of slaves; each by offset, and so by time too.
        self._waiting: dict[int, deque[_Wait]] = {}
        self._patience: asyncio.TimerHandle | None = None

    def acknowledge(self, result: PutMessageResult, on_acknowledged: OnAcknowledged) -> None:
        """Call ``on_acknowledged`` when enough slaves have a message, or when ``slaveTimeout`` has passed.

        As in RocketMQ, ``inSyncReplicas=1`` waits for no slave.
        """
        needed = self._needed()
        if needed <= 0:
            on_acknowledged(ACKNOWLEDGED)
            return
        end = result.physical_offset + result.size
        waiting = self._waiting.setdefault(needed, deque())
        waiting.append(_Wait(needed, end, asyncio.get_running_loop().time(), on_acknowledged))
        if self._patience is None:
            self._set_timer()

    def shortage(self) -> PutMessageResult | None:
        """Return the rejection of a put while it needs more brokers than are in sync, else ``None``.

        RocketMQ rejects before it stores with ``enableSlaveActingMaster`` alone (CommitLog.asyncPutMessage).
        """
        in_sync, config = self.in_sync_slaves, self._config
        needed = config.needed_slaves(in_sync)
        if needed <= in_sync:
            return None
        name = "minInSyncReplicas" if config.enable_auto_in_sync_replicas else "inSyncReplicas"
        reason = (
            f"in-sync replicas not enough: {in_sync} slaves are in sync (haMaxGapNotInSync), and the message needs "
            f"{needed} ({name}); {self.slaves()}"
        )
        return PutMessageResult(PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, reason=reason)

    def reported(self) -> None:
        """Acknowledge the messages that enough slaves have. Call it now and then, as settings may change."""
        if not self._waiting:
            return
        offsets = sorted(self.ack_offsets(), reverse=True)
        for needed, waiting in list(self._waiting.items()):
            confirmed = offsets[needed - 1] if needed <= len(offsets) else -1
            while waiting and waiting[0].end <= confirmed:
                waiting.popleft().on_acknowledged(ACKNOWLEDGED)
        self._set_timer()

    def _needed(self) -> int:
        """Return the number of slaves that must have a message that is put now."""
        config = self._config
        return config.needed_slaves(self.in_sync_slaves if config.enable_auto_in_sync_replicas else 0)

    @property
    def in_sync_slaves(self) -> int:
        """Number of slaves that count and are in sync (DefaultHAService.inSyncReplicasNums, without the master)."""
        least = self.log_end() - self._config.ha_max_gap_not_in_sync
        return sum(offset >= 0 and offset > least for offset in self.ack_offsets())

    def _set_timer(self) -> None:
        """Call ``_give_up`` at the deadline of the first wait, or before it: never for each report."""
        for needed in [needed for needed, waiting in self._waiting.items() if not waiting]:
            del self._waiting[needed]
        timer, loop = self._patience, asyncio.get_running_loop()
        due = None
        if self._waiting:
            due = min(waiting[0].begun for waiting in self._waiting.values()) + self._config.slave_timeout / 1000
        if timer is not None and (due is None or due < timer.when()):
            timer.cancel()
            timer = None
        if timer is None and due is not None:
            timer = loop.call_at(due, self._give_up)
        self._patience = timer

    def _give_up(self) -> None:
        """End the waits whose deadline has passed."""
        config, now = self._config, asyncio.get_running_loop().time()
        self._patience = None
        late = []
        for waiting in self._waiting.values():
            while waiting and waiting[0].begun + config.slave_timeout / 1000 <= now:
                late.append(waiting.popleft())
        self._set_timer()
        if not late:
            return
        slaves = self.slaves()
        outcomes = {
            needed: Acknowledgement(
                PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
                f"the message was not on {needed} slaves within {config.slave_timeout} ms "
                f"(inSyncReplicas, slaveTimeout); {slaves}",
            )
            for needed in {wait.needed for wait in late}
        }
        for wait in late:
            wait.on_acknowledged(outcomes[wait.needed])


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
        appender: calls ``wakeup`` after messages were appended, while slaves are connected.
        tls: serves TLS, besides plain text or alone; ``None`` for plain text alone.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        config: MessageStoreConfig,
        source: TransferSource,
        appender: MessageAppender,
        gate: SlaveGate[HAConnection],
        transfers: GroupTransferService,
        tls: ServerTls | None = None,
    ) -> None:
        self._sockets = sockets
        self._tls = tls
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
        transfers.log_end = lambda: source.log_end

    @property
    def slaves(self) -> list[HAConnection]:
        """Connections that have reported, oldest first.

        Others take one of the places, but are no slaves: before its first report a peer may not even have done the TLS
        handshake, and it would take the place of the slave at its address.
        """
        return [each for each in self.connections if each.is_slave]

    async def start(self) -> None:
        """Listen for slaves.

        Raises:
            ConfigError: Another process took the port after it was bound.
        """
        loop, tls, make = asyncio.get_running_loop(), self._tls, self._new_connection
        for sock in self._sockets:
            # A duplicate: the service may stop and start again with the role.
            listening = sock.dup()
            listen(listening, _BACKLOG)  # uvloop would leak a socket that cannot listen
            self._servers.append(
                await loop.create_server(
                    make if tls is None else admitting(tls.failed_connections, make),
                    sock=listening,
                    backlog=_BACKLOG,
                )
            )
        # Looks at each connection: heartbeats, silence, records that no batch end announced.
        self._tasks.every(TICK_S, self._check, "check")

    def _new_connection(self) -> asyncio.BaseProtocol:
        connection = HAConnection(self, self._source, self._config, self._tasks, self._gate.access)
        return connection if self._tls is None else FirstByte(connection, self._tls)

    async def stop(self) -> None:
        """Close the port, and all connections once the slaves have the log or ``slaveTimeout`` has passed."""
        servers, self._servers = self._servers, []
        await close_servers(servers)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.slave_timeout / 1000
        while any(each.is_behind for each in self.connections) and loop.time() < deadline:
            self._transfer()
            await asyncio.sleep(_STOP_CHECK_S)
        for connection in list(self.connections):
            connection.close("the broker stops, or is no longer a master")
        await self._tasks.stop()

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

    @property
    def in_sync_slaves(self) -> int:
        """Number of slaves in sync for which sends wait."""
        return self._transfers.in_sync_slaves

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
        if self._config.broker_role != "SYNC_MASTER" or not self._config.most_needed_slaves:
            return
        slaves, now = self.slaves, asyncio.get_running_loop().time()
        counted = self._gate.counted(slaves)
        for each in slaves:
            # It had time to register.
            if each not in counted and each not in self._warned and now - each.begun_at > _UNKNOWN_S:
                self._warned.add(each)
                log.warning(
                    "HAService: no send waits for the slave at %s (inSyncReplicas): %s", each.peer, _WHY_NOT_COUNTED
                )

    def _describe(self) -> str:
        """Return the numbers of connected slaves and of those that count."""
        slaves = self.slaves
        connected, counted = len(slaves), len(self._gate.counted(slaves))
        reason = f": {_WHY_NOT_COUNTED}" if counted < connected else ""
        return f"connected slaves: {connected}, of which count: {counted}{reason}"

    def _ack_offsets(self) -> list[int]:
        """Return the reports of the slaves that count for acknowledgement."""
        return [each.ack_offset for each in self._gate.counted(self.slaves)]

    def runtime_info(self) -> HARuntimeInfo:
        """Return the state of the slaves for GET_BROKER_HA_STATUS."""
        slaves = []
        for each in self.slaves:
            behind = self._source.log_end - each.ack_offset
            in_sync = each.ack_offset >= 0 and behind < self._config.ha_max_gap_not_in_sync
            slaves.append(
                HAConnectionRuntimeInfo(each.peer, each.ack_offset, behind, in_sync, each.bytes_per_s, each.next_offset)
            )
        return HARuntimeInfo(True, self._source.log_end, sum(slave.in_sync for slave in slaves), slaves)
