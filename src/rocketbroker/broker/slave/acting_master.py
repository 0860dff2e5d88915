"""Service of a slave for a lost master, and a master's steps before it goes online (BrokerPreOnlineService)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.registration.broker_registration import Members
from rocketbroker.broker.registration.namesrv_link import RETRY_S, Master
from rocketbroker.broker.schedule_message_service import ScheduleMessageService
from rocketbroker.broker.slave.master_client import MasterClient
from rocketbroker.broker.slave.slave_synchronize import level_fault
from rocketbroker.broker.timer.timer_message_store import TimerMessageStore
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import CodecError, RemotingError
from rocketbroker.common.lifecycle import Part, TaskOwner

# State of a slave that acts as master (BrokerController.updateMinBroker, changeSpecialServiceStatus).
#
# The slave with the smallest live id of its name acts while no master is registered: clients see it as broker 0,
# without write permission. It stops when a smaller id is back.

log = logging.getLogger(__name__)

# Time for which the services stay stopped after a master announced itself: its log arrives from then on.
_HAND_OVER_S: Final = 15.0
# The same once its log has arrived, if that ends: longer than the slave needs to connect again.
_RECONNECT_S: Final = 3.0
# Answers without a master that make this broker act: one may be that of a name server that has just started.
_LONE_ANSWERS: Final = 2
# Longest pause between two such answers.
_CONFIRM_S: Final = 1.0
# Shortest pause between two rounds, however many notices arrive.
_PAUSE_S: Final = 0.2


class ActingMaster:
    """Follows the live brokers of its name, and runs the services of an acting master.

    Several name servers may disagree. A broker counts as live if one of those that answer has it, so that a cut between
    a name server and the master does not make the slave act. Without any answer nothing changes. A master whose log
    still arrives is alive, although no name server may have it: the slave does not begin to act.

    Args:
        config: ``enableSlaveActingMaster``, ``brokerId``, ``syncBrokerMemberGroupPeriod``.
        services: run while this broker acts and the log of no master arrives.
        master_delivers: returns true while the log of a master arrives.

    Attributes:
        is_acting: true while this broker acts as master.
        members: live brokers of the name by the last answers.
        on_change: called when this broker begins or ceases to act, or another master is there.
        on_answers: called when name servers have answered, once the services run or stop accordingly.
        on_silence: called when none has answered.
    """

    def __init__(
        self,
        config: BrokerConfig,
        fetch: Callable[[str], Awaitable[Members]],
        name_servers: Callable[[], list[str]],
        services: Part,
        master_delivers: Callable[[], bool],
    ) -> None:
        self._config = config
        self._fetch = fetch
        self._name_servers = name_servers
        self._services = services
        self._master_delivers = master_delivers
        self._tasks = TaskOwner("ActingMaster")
        self._switches = TaskOwner("ActingMaster services")
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        self._lone_answers = 0
        self._resumes_at = 0.0
        self._is_running = False
        self.is_acting = False
        self.members: Members = {}
        self.on_change: Callable[[], object] = lambda: None
        self.on_answers: Callable[[], object] = lambda: None
        self.on_silence: Callable[[], object] = lambda: None

    async def start(self) -> None:
        """Begin to follow the name servers, if ``enableSlaveActingMaster`` is on."""
        if self._config.enable_slave_acting_master:
            self._tasks.forever(self._run, "run")

    async def stop(self) -> None:
        await self._tasks.stop()
        self.is_acting = False
        await self._run_services()

    def sync_soon(self) -> None:
        """Ask the name servers soon (NOTIFY_MIN_BROKER_ID_CHANGE)."""
        self._wake.set()

    async def hand_over(self) -> None:
        """Stop the services for a master that is about to take over their progress (EXCHANGE_BROKER_HA_INFO)."""
        self._resumes_at = asyncio.get_running_loop().time() + _HAND_OVER_S
        await self._run_services()

    @property
    def suggested_id(self) -> int:
        """Id by which consumers reach this acting master.

        Routes have it as broker 0. A consumer with an old route reaches broker 0 no longer, but this broker by its own
        id. With further slaves that id would lead a client with a new route to one of them.
        """
        return MASTER_ID if len(self.members) > 1 else self._config.broker_id

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            await self.sync()
            await asyncio.sleep(_PAUSE_S)
            period_s = self._config.sync_broker_member_group_period / 1000
            if self._lone_answers and not self.is_acting:
                period_s = min(period_s, _CONFIRM_S)
            try:
                async with asyncio.timeout(period_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def sync(self) -> None:
        """Ask all name servers once, and begin or cease to act."""
        answers = await asyncio.gather(*map(self._ask, self._name_servers()))
        known = [members for members in answers if members]
        if not known:
            self.on_silence()
            return
        own, before = self._config.broker_id, self.members.get(MASTER_ID)
        self.members = {number: address for members in known for number, address in members.items()}
        is_first, acted = own in self.members and own == min(self.members), self.is_acting
        self._lone_answers = self._lone_answers + 1 if is_first and not self._master_delivers() else 0
        acts = is_first and (acted or self._lone_answers >= _LONE_ANSWERS)
        if acts and not acted:
            log.warning("no master of %s is registered: this slave acts as master", self._config.broker_name)
        elif acted and not acts:
            log.warning("this slave no longer acts as master: broker %d is registered", min(self.members))
        self.is_acting = acts
        if not acts:
            self._resumes_at = 0.0
        if acts != acted or self.members.get(MASTER_ID) != before:
            self.on_change()
        await self._run_services()
        # After a pause of this process the services wait for this: they run on only if it still acts.
        self.on_answers()

    async def _ask(self, name_server: str) -> Members:
        try:
            return await self._fetch(name_server)
        except (RemotingError, CodecError) as error:
            log.debug("name server %s does not name the brokers of this name: %s", name_server, error)
            return {}

    async def _run_services(self) -> None:
        """Start or stop the services as needed; a failed start is retried by the next round.

        A cancelled caller does not interrupt it: a part whose stop was cut short would keep its threads.
        """
        await asyncio.shield(self._switches.start(self._switch_services(), "switch"))

    async def _switch_services(self) -> None:
        async with self._lock:
            now, delivers = asyncio.get_running_loop().time(), self._master_delivers()
            if delivers:
                self._resumes_at = min(self._resumes_at, now + _RECONNECT_S)
            is_needed = self.is_acting and not delivers and now >= self._resumes_at
            if is_needed == self._is_running:
                return
            if is_needed:
                await self._services.start()
            else:
                await self._services.stop()
            self._is_running = is_needed


# Progress that a returning master takes over from its slaves before it registers (BrokerPreOnlineService).
#
# A slave that acted as master has newer consumer offsets, and with ``enableRemoteEscape`` newer progress of deliveries.
# Without them consumers would go back, and delayed messages would be delivered again. RocketMQ compares versions of
# whole tables; here the higher offset of each queue counts, among those that were committed at the slave.
#
# A slave hands over only after it has found its log in that of the master: progress of another log would skip messages
# that were never delivered.

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
        client_of: returns a client for the address of a slave.
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
