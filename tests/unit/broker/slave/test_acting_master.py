"""Tests of the acting master: the time at which a slave acts, and that at which its services run."""

import asyncio

import pytest

from rocketbroker.broker.out.member_group import Members
from rocketbroker.broker.slave import acting_master
from rocketbroker.broker.slave.acting_master import ActingMaster
from rocketbroker.broker.slave.master_deliveries import DeliveryLease
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import RemotingConnectError
from tests.support.running import running
from tests.support.waiting import turns, until

MASTER, SLAVE, OTHER = "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"
CONFIG = BrokerConfig(
    broker_name="broker-a", broker_id=1, enable_slave_acting_master=True, sync_broker_member_group_period=60_000
)


class Services:
    """Notes whether it runs; fails to start as often as ``failures`` says."""

    def __init__(self) -> None:
        self.runs = False
        self.failures = 0
        self.is_cut_short = False
        # Set to let a stop end.
        self.may_stop = asyncio.Event()
        self.may_stop.set()

    async def start(self) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("the disk is broken")
        self.runs = True

    async def stop(self) -> None:
        try:
            await self.may_stop.wait()
        except asyncio.CancelledError:
            self.is_cut_short = True
            raise
        self.runs = False


class Fixture:
    """A slave with id 1, and what its name servers answer; one without an entry is dead."""

    def __init__(self) -> None:
        self.said: dict[str, Members] = {}
        self.services = Services()
        self.changes: list[bool] = []
        self.log_arrives = False
        self.acting = ActingMaster(CONFIG, self._fetch, lambda: ["ns1", "ns2"], self.services, lambda: self.log_arrives)
        self.acting.on_change = lambda: self.changes.append(self.acting.is_acting)

    async def _fetch(self, name_server: str) -> Members:
        if name_server not in self.said:
            raise RemotingConnectError("it is dead")
        return self.said[name_server]

    async def sync(self, **said: Members) -> bool:
        """Ask twice; return true if the slave acts, with its services."""
        self.said = said
        await self.acting.sync()
        await self.acting.sync()
        assert self.services.runs == self.acting.is_acting
        return self.acting.is_acting


@pytest.fixture
def slave() -> Fixture:
    return Fixture()


async def test_the_smallest_id_acts_while_no_master_is_registered(slave: Fixture):
    assert not await slave.sync(ns1={0: MASTER, 1: SLAVE})
    assert await slave.sync(ns1={1: SLAVE})
    assert await slave.sync(ns1={1: SLAVE, 2: OTHER})
    assert not await slave.sync(ns1={0: MASTER, 1: SLAVE})
    # A change of the master's address counts, too: the first answer names one, and then none is left.
    assert slave.changes == [False, False, True, False]


async def test_a_slave_does_not_act_before_it_is_registered_itself(slave: Fixture):
    assert not await slave.sync(ns1={2: OTHER})
    assert not await slave.sync(ns1={})


async def test_a_master_that_one_name_server_has_is_alive(slave: Fixture):
    assert not await slave.sync(ns1={1: SLAVE}, ns2={0: MASTER, 1: SLAVE})
    assert await slave.sync(ns1={1: SLAVE}, ns2={})


async def test_without_an_answer_nothing_changes(slave: Fixture):
    assert not await slave.sync()
    assert await slave.sync(ns1={1: SLAVE})
    assert await slave.sync()
    assert slave.changes == [True]


async def test_consumers_reach_a_lone_slave_by_its_own_id_and_others_by_that_of_the_master(slave: Fixture):
    await slave.sync(ns1={1: SLAVE})
    assert slave.acting.suggested_id == 1
    await slave.sync(ns1={1: SLAVE, 2: OTHER})
    assert slave.acting.suggested_id == 0


async def test_the_services_stop_for_a_master_that_comes(slave: Fixture, monkeypatch: pytest.MonkeyPatch):
    await slave.sync(ns1={1: SLAVE})

    await slave.acting.hand_over()
    assert slave.acting.is_acting
    assert not slave.services.runs
    await slave.acting.sync()
    assert not slave.services.runs, "the master is not registered yet"

    monkeypatch.setattr(acting_master, "_HAND_OVER_S", 0.0)
    await slave.acting.hand_over()
    assert await slave.sync(ns1={1: SLAVE}), "it never registered"


async def test_one_answer_without_the_master_is_not_enough(slave: Fixture):
    slave.said = {"ns1": {1: SLAVE}}
    await slave.acting.sync()
    assert not slave.acting.is_acting
    slave.said = {"ns1": {0: MASTER, 1: SLAVE}}
    await slave.acting.sync()
    slave.said = {"ns1": {1: SLAVE}}
    await slave.acting.sync()
    assert not slave.acting.is_acting


async def test_a_slave_does_not_act_while_the_log_of_its_master_arrives(slave: Fixture):
    slave.log_arrives = True
    assert not await slave.sync(ns1={1: SLAVE}), "the name server has just started"
    slave.log_arrives = False
    assert await slave.sync(ns1={1: SLAVE})


async def test_the_services_stop_while_the_log_of_a_returning_master_arrives(slave: Fixture):
    await slave.sync(ns1={1: SLAVE})
    slave.log_arrives = True
    await slave.acting.sync()
    assert slave.acting.is_acting
    assert not slave.services.runs
    slave.log_arrives = False
    assert await slave.sync(ns1={1: SLAVE})


async def test_the_services_start_again_soon_after_a_master_that_died_before_it_registered(
    slave: Fixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(acting_master, "_RECONNECT_S", 0.0)
    await slave.sync(ns1={1: SLAVE})
    await slave.acting.hand_over()
    slave.log_arrives = True
    await slave.acting.sync()
    assert not slave.services.runs
    slave.log_arrives = False
    assert await slave.sync(ns1={1: SLAVE})


async def test_a_stop_in_the_middle_of_a_switch_waits_for_its_end(slave: Fixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(acting_master, "_PAUSE_S", 0.01)
    monkeypatch.setattr(acting_master, "_CONFIRM_S", 0.01)
    slave.said = {"ns1": {1: SLAVE}}
    await slave.acting.start()
    await until(lambda: slave.services.runs)
    slave.services.may_stop.clear()
    slave.said = {"ns1": {0: MASTER, 1: SLAVE}}
    slave.acting.sync_soon()
    await until(lambda: not slave.acting.is_acting)

    stop = asyncio.create_task(slave.acting.stop())
    await turns()
    assert not stop.done()
    slave.services.may_stop.set()
    await stop
    assert not slave.services.runs
    assert not slave.services.is_cut_short


async def test_a_notice_makes_it_ask_soon_and_a_stop_ends_the_services(slave: Fixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(acting_master, "_PAUSE_S", 0.01)
    monkeypatch.setattr(acting_master, "_CONFIRM_S", 0.01)
    slave.said = {"ns1": {0: MASTER, 1: SLAVE}}
    async with running(slave.acting):
        await until(lambda: slave.changes == [False])
        slave.said = {"ns1": {1: SLAVE}}
        slave.acting.sync_soon()
        await until(lambda: slave.services.runs)
    assert not slave.services.runs
    assert not slave.acting.is_acting


async def test_a_failed_start_of_the_services_is_retried(slave: Fixture):
    slave.services.failures, slave.said = 1, {"ns1": {1: SLAVE}}
    await slave.acting.sync()
    with pytest.raises(OSError, match="the disk is broken"):
        await slave.acting.sync()
    assert await slave.sync(ns1={1: SLAVE})


async def test_without_the_mode_it_asks_nobody():
    asked: list[str] = []

    async def fetch(name_server: str) -> Members:
        asked.append(name_server)
        return {1: SLAVE}

    config = BrokerConfig(broker_id=1)
    async with running(ActingMaster(config, fetch, lambda: ["ns1"], Services(), bool)) as acting:
        await asyncio.sleep(0)
        acting.sync_soon()
        await asyncio.sleep(0)
    assert asked == []


async def test_an_idle_acting_master_delivers_on_while_all_name_servers_are_silent(slave: Fixture):
    seconds = [1000.0]
    lease = DeliveryLease(CONFIG, lambda: seconds[0])
    slave.acting.on_answers, slave.acting.on_silence = lease.extend, lease.holds
    assert await slave.sync(ns1={1: SLAVE})
    for _ in range(20):
        seconds[0] += 2.0
        assert await slave.sync()
    assert lease.holds()

    seconds[0] += 60.0
    await slave.sync()
    assert not lease.holds(), "it stood still, and no name server says that it still acts"
    await slave.sync(ns1={1: SLAVE})
    assert lease.holds()
