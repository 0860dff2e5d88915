"""State of a slave that acts as master (BrokerController.updateMinBroker, changeSpecialServiceStatus).

The slave with the smallest live id of its name acts while no master is registered: clients see it as broker 0, without
write permission. It stops when a smaller id is back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from rocketbroker.broker.out.member_group import Members
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import CodecError, RemotingError
from rocketbroker.common.lifecycle import Part, TaskOwner

log = logging.getLogger(__name__)

# Time for which the services stay stopped after a master announced itself: its log arrives from then on.
_HAND_OVER_S: Final = 15.0
# The same once its log has arrived, if that ends: longer than the slave needs to connect again.
_RECONNECT_S: Final = 3.0
# Answers without a master that make this broker act: one may be that of a name server that has just started.
_LONE_ANSWERS: Final = 2
# Longest pause between them.
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
        fetch: returns the live brokers that a name server knows.
        name_servers: returns the addresses of the name servers.
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
        """Stop acting."""
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
