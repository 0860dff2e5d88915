"""Progress that a returning master takes over from its slaves before it registers (BrokerPreOnlineService).

A slave that acted as master has newer consumer offsets, and with ``enableRemoteEscape`` newer progress of deliveries.
Without them consumers would go back, and delayed messages would be delivered again. RocketMQ compares versions of whole
tables; here the higher offset of each queue counts, among those that were committed at the slave.

A slave hands over only after it has found its log in that of the master: progress of another log would skip messages
that were never delivered.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.out.master_address import Master
from rocketbroker.broker.out.member_group import Members
from rocketbroker.broker.out.namesrv_link import RETRY_S
from rocketbroker.broker.schedule.schedule_message_service import ScheduleMessageService
from rocketbroker.broker.slave.master_client import MasterClient
from rocketbroker.broker.slave.slave_synchronize import level_fault
from rocketbroker.broker.timer.timer_message_store import TimerMessageStore
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import CodecError, RemotingError

log = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
# Longer than a name server needs to forget a dead slave.
LIMIT_S: Final = 15.0
# Longer than a slave needs to register at a name server that was started again.
_REGISTER_S: Final = RETRY_S + 1.0


class Progress(NamedTuple):
    """Progress of a master that its slaves may be ahead of; ``end_of`` returns the end of a topic's queue."""

    offsets: ConsumerOffsetManager
    schedule: ScheduleMessageService
    timer: TimerMessageStore
    end_of: Callable[[str, int], int]


class BrokerPreOnlineService:
    """Takes over the progress of all live slaves; it runs before the services that deliver.

    Args:
        config: ``enableSlaveActingMaster``, ``skipPreOnline``.
        name_servers: returns the addresses of the name servers.
        fetch: returns the live brokers that a name server knows.
        client_of: returns a client for the address of a slave.
        own_addresses: returns the addresses of this master.
        progress: the progress of this master, loaded.
        clock: checks the times of the slaves.
    """

    def __init__(
        self,
        config: BrokerConfig,
        name_servers: Callable[[], Awaitable[list[str]]],
        fetch: Callable[[str], Awaitable[Members]],
        client_of: Callable[[str], MasterClient],
        own_addresses: Callable[[], Master],
        progress: Progress,
        clock: Clock,
    ) -> None:
        self._config = config
        self._name_servers = name_servers
        self._fetch = fetch
        self._client_of = client_of
        self._own_addresses = own_addresses
        self._progress = progress
        self._clock = clock
        # Time from which an empty answer counts.
        self._registered_at = 0.0

    async def start(self) -> None:
        """Take over the progress; give up after ``LIMIT_S``, so that a broken slave does not keep its master away."""
        if not self._config.enable_slave_acting_master or self._config.skip_pre_online or not self._has_name_servers:
            return
        finished: set[str] = set()
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    if await self._take_over_all(finished):
                        return
                    await asyncio.sleep(_RETRY_S)
        except TimeoutError:
            log.error(  # noqa: TRY400 - the traceback of a timeout says nothing
                "BrokerPreOnlineService: the progress of some slaves was not taken over within %g s; messages may be "
                "delivered twice",
                LIMIT_S,
            )

    async def stop(self) -> None:
        """Do nothing: all work is done when ``start`` returns."""

    @property
    def _has_name_servers(self) -> bool:
        return bool(self._config.namesrv_addr) or self._config.fetch_namesrv_addr_by_address_server

    async def _take_over_all(self, finished: set[str]) -> bool:
        """Take over from slaves that are not ``finished`` yet; return true once that is done for all."""
        slaves = await self._slaves()
        if slaves is None:
            return False
        for address in slaves:
            if address in finished:
                continue
            try:
                await self._take_over(address)
            except (RemotingError, CodecError) as error:
                log.warning("BrokerPreOnlineService: the slave %s does not hand over: %s; retrying", address, error)
                return False
            finished.add(address)
        return True

    async def _slaves(self) -> list[str] | None:
        """Return the addresses of all live slaves, ``None`` while the name servers may not know them."""
        now = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*map(self._members, await self._name_servers()))
        known = [members for members in answers if members is not None]
        if not known:
            # Slaves register again once one is back.
            self._registered_at = now + _REGISTER_S
            return None
        slaves = [address for members in known for number, address in members.items() if number != MASTER_ID]
        return list(dict.fromkeys(slaves)) if slaves or now >= self._registered_at else None

    async def _members(self, name_server: str) -> Members | None:
        try:
            return await self._fetch(name_server)
        except (RemotingError, CodecError) as error:
            log.warning("BrokerPreOnlineService: name server %s names no slaves: %s", name_server, error)
            return None

    async def _take_over(self, address: str) -> None:
        client, progress = self._client_of(address), self._progress
        # First: the slave stops its deliveries, so that its answers are final, and compares its log with this one.
        if not await client.announce(self._own_addresses()):
            log.info("BrokerPreOnlineService: the slave %s never acts as master, and has no progress", address)
            return
        offsets, delays = await client.consumer_offsets(), await client.delay_offsets()
        levels = delays.offset_table
        delays.offset_table = {level: levels[level] for level in levels if not level_fault(level, levels[level])}
        checkpoint = await client.timer_checkpoint(self._clock.time_ms())
        # An Apache slave does not say which offsets were committed at it.
        commits = offsets.offset_table if offsets.slave_commit_table is None else offsets.slave_commit_table
        count = progress.offsets.take_over(commits, progress.end_of)
        progress.schedule.follow(delays)
        progress.timer.follow(checkpoint)
        log.info("BrokerPreOnlineService: %d consumer offsets of the slave %s are ahead and taken over", count, address)
