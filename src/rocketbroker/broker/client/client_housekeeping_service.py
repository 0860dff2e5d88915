"""Removal of disconnected and silent clients (org.apache.rocketmq.broker.client.ClientHousekeepingService)."""

from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.client.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.common.lifecycle import TaskOwner

SCAN_PERIOD_S = 10.0


class ClientHousekeepingService:
    """Removes clients at once when their connection closes; silent ones, and expired locks, by a scan every 10 s."""

    def __init__(
        self,
        producer_manager: ProducerManager,
        consumer_manager: ConsumerManager,
        locks: RebalanceLockManager,
        period_s: float = SCAN_PERIOD_S,
    ) -> None:
        self._producer_manager = producer_manager
        self._consumer_manager = consumer_manager
        self._locks = locks
        self._period_s = period_s
        self._tasks = TaskOwner("ClientHousekeepingService")

    async def start(self) -> None:
        """Start scanning."""
        self._tasks.every(self._period_s, self.scan, "scan")

    async def stop(self) -> None:
        """Stop scanning."""
        await self._tasks.stop()

    def scan(self) -> None:
        """Close the clients whose last heartbeat is too old; forget expired locks."""
        self._producer_manager.scan_not_active()
        self._consumer_manager.scan_not_active()
        self._locks.forget_expired()

    def on_close(self, connection: Connection) -> None:
        """Remove the clients of a closed connection."""
        self._producer_manager.close_connection(connection)
        self._consumer_manager.close_connection(connection)
