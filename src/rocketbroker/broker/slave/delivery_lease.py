"""Deliveries of a master, which stop after a long pause of the process until the pre-online steps have run again.

A process may stand still: SIGSTOP, a suspended or migrated machine, a disk that blocks the loop. With
``enableSlaveActingMaster`` its heartbeats end meanwhile, and after ``brokerNotActiveTimeoutMillis`` the name servers
make a slave the acting master, which sends what falls due to another master (``enableRemoteEscape``). The paused
master knows nothing of this when it goes on: by its own clock all of that is due, and it would deliver it a second
time.

So the right to deliver is a lease. It is lost by a gap between two looks that may have been long enough for a name
server, and whoever looks first after the gap finds it: the tick of this part, a round of an acting slave, or a
delivery right before it stores something. Between a look and the append after it there is no await, so a pause there
repeats the messages of that append at most. A lost lease stops the deliveries, takes over the progress of the slaves
as at a start, and starts them again. A pause amid these steps repeats them. A link that is cut has no gap: there both
brokers deliver, as in RocketMQ.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.lifecycle import Part, TaskOwner

log = logging.getLogger(__name__)

_TICK_S: Final = 0.5


def running_time() -> float:
    """Return seconds of a clock that also counts while the machine is suspended, where the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class DeliveryLease:
    """Right to deliver, which a pause takes away.

    Args:
        config: ``enableSlaveActingMaster``; without it nobody else delivers, and the lease always holds.
        now: returns the seconds of a monotonic clock.

    Attributes:
        is_needed: false if the lease always holds.
    """

    def __init__(self, config: BrokerConfig, now: Callable[[], float] = running_time) -> None:
        self.is_needed = config.enable_slave_acting_master and not config.skip_pre_online
        # The last heartbeat before a pause may be an interval old.
        unheard_ms = config.broker_not_active_timeout_millis - config.broker_heartbeat_interval
        self._bound_s = max(unheard_ms / 1000, 2 * _TICK_S)
        self._now = now
        self._looked_at = now()
        self._is_lost = self._is_confirmed = False

    def holds(self) -> bool:
        """Return true if the lease was confirmed, and no long pause came after that."""
        return self._look() and self._is_confirmed

    def _look(self) -> bool:
        now = self._now()
        self._is_lost |= self.is_needed and now - self._looked_at > self._bound_s
        self._looked_at = now
        return not self._is_lost

    def renew(self) -> None:
        """Begin a new lease, which holds once it is confirmed."""
        self._looked_at, self._is_lost, self._is_confirmed = self._now(), False, False

    def confirm(self) -> bool:
        """Let the lease hold, and return true, unless a long pause came since it was renewed."""
        self._is_confirmed = self._look()
        return self._is_confirmed

    def extend(self) -> None:
        """Let the lease hold for an acting master, when a name server has answered who is live."""
        self.renew()
        self.confirm()


class MasterDeliveries:
    """Starts the deliveries of a master after its pre-online steps, also after a pause.

    Args:
        pre_online: takes over the progress of the slaves; all is done when its start returns.
        on_taken_over: called after each of these steps; tells parts that do not restart, as they serve requests.
    """

    def __init__(
        self, lease: DeliveryLease, pre_online: Part, services: Part, on_taken_over: Callable[[], object]
    ) -> None:
        self._lease = lease
        self._pre_online = pre_online
        self._services = services
        self._on_taken_over = on_taken_over
        self._tasks = TaskOwner("MasterDeliveries")
        # Held while services start or stop: a stop that was cut short would keep their threads.
        self._switching = asyncio.Lock()
        self._are_running = False

    async def start(self) -> None:
        """Run the pre-online steps, then start the services."""
        if self._lease.is_needed:
            self._tasks.every(_TICK_S, self._look, "look")
        try:
            await self._resume()
        except BaseException:
            await self._tasks.stop()
            raise
        if self._lease.is_needed:
            self._tasks.forever(self._watch, "watch")

    async def stop(self) -> None:
        async with self._switching:
            await self._tasks.stop()
        await self._stop_services()

    def _look(self) -> None:
        self._lease.holds()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            if self._lease.holds() and self._are_running:
                continue
            log.warning(
                "deliveries stop: this process stood still so long that a slave may act as master; they continue "
                "once its progress is taken over"
            )
            await self._stop_services()
            await self._resume()
            log.warning("deliveries continue after a pause of this process")

    async def _resume(self) -> None:
        while True:
            self._lease.renew()
            await self._pre_online.start()
            self._on_taken_over()
            if self._lease.confirm():
                break
        async with self._switching:
            self._are_running = True
            try:
                await self._services.start()
            except BaseException:
                self._are_running = False
                raise

    async def _stop_services(self) -> None:
        async with self._switching:
            if self._are_running:
                self._are_running = False
                await self._services.stop()
