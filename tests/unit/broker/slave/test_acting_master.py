"""Tests of the acting master: the time at which a slave acts, and that at which its services run."""

import asyncio
from types import SimpleNamespace

import pytest

from rocketbroker.broker.registration.broker_registration import Members
from rocketbroker.broker.registration.namesrv_link import Master
from rocketbroker.broker.slave import acting_master
from rocketbroker.broker.slave.acting_master import ActingMaster, BrokerPreOnlineService, Progress
from rocketbroker.broker.slave.delivery_lease import DeliveryLease
from rocketbroker.broker.slave.master_client import MasterClient
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.codec.storefile.checkpoint_layout import TimerCheckpoint
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import RemotingConnectError
from tests.support.fake_master import FakeMaster
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
def acting() -> Fixture:
    return Fixture()


async def test_the_smallest_id_acts_while_no_master_is_registered(acting: Fixture):
    assert not await acting.sync(ns1={0: MASTER, 1: SLAVE})
    assert await acting.sync(ns1={1: SLAVE})
    assert await acting.sync(ns1={1: SLAVE, 2: OTHER})
    assert not await acting.sync(ns1={0: MASTER, 1: SLAVE})
    # A change of the master's address counts, too: the first answer names one, and then none is left.
    assert acting.changes == [False, False, True, False]


async def test_a_slave_does_not_act_before_it_is_registered_itself(acting: Fixture):
    assert not await acting.sync(ns1={2: OTHER})
    assert not await acting.sync(ns1={})


async def test_a_master_that_one_name_server_has_is_alive(acting: Fixture):
    assert not await acting.sync(ns1={1: SLAVE}, ns2={0: MASTER, 1: SLAVE})
    assert await acting.sync(ns1={1: SLAVE}, ns2={})


async def test_without_an_answer_nothing_changes(acting: Fixture):
    assert not await acting.sync()
    assert await acting.sync(ns1={1: SLAVE})
    assert await acting.sync()
    assert acting.changes == [True]


async def test_consumers_reach_a_lone_slave_by_its_own_id_and_others_by_that_of_the_master(acting: Fixture):
    await acting.sync(ns1={1: SLAVE})
    assert acting.acting.suggested_id == 1
    await acting.sync(ns1={1: SLAVE, 2: OTHER})
    assert acting.acting.suggested_id == 0


async def test_the_services_stop_for_a_master_that_comes(acting: Fixture, monkeypatch: pytest.MonkeyPatch):
    await acting.sync(ns1={1: SLAVE})

    await acting.acting.hand_over()
    assert acting.acting.is_acting
    assert not acting.services.runs
    await acting.acting.sync()
    assert not acting.services.runs, "the master is not registered yet"

    monkeypatch.setattr(acting_master, "_HAND_OVER_S", 0.0)
    await acting.acting.hand_over()
    assert await acting.sync(ns1={1: SLAVE}), "it never registered"


async def test_one_answer_without_the_master_is_not_enough(acting: Fixture):
    acting.said = {"ns1": {1: SLAVE}}
    await acting.acting.sync()
    assert not acting.acting.is_acting
    acting.said = {"ns1": {0: MASTER, 1: SLAVE}}
    await acting.acting.sync()
    acting.said = {"ns1": {1: SLAVE}}
    await acting.acting.sync()
    assert not acting.acting.is_acting


async def test_a_slave_does_not_act_while_the_log_of_its_master_arrives(acting: Fixture):
    acting.log_arrives = True
    assert not await acting.sync(ns1={1: SLAVE}), "the name server has just started"
    acting.log_arrives = False
    assert await acting.sync(ns1={1: SLAVE})


async def test_the_services_stop_while_the_log_of_a_returning_master_arrives(acting: Fixture):
    await acting.sync(ns1={1: SLAVE})
    acting.log_arrives = True
    await acting.acting.sync()
    assert acting.acting.is_acting
    assert not acting.services.runs
    acting.log_arrives = False
    assert await acting.sync(ns1={1: SLAVE})


async def test_the_services_start_again_soon_after_a_master_that_died_before_it_registered(
    acting: Fixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(acting_master, "_RECONNECT_S", 0.0)
    await acting.sync(ns1={1: SLAVE})
    await acting.acting.hand_over()
    acting.log_arrives = True
    await acting.acting.sync()
    assert not acting.services.runs
    acting.log_arrives = False
    assert await acting.sync(ns1={1: SLAVE})


async def test_a_stop_in_the_middle_of_a_switch_waits_for_its_end(acting: Fixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(acting_master, "_PAUSE_S", 0.01)
    monkeypatch.setattr(acting_master, "_CONFIRM_S", 0.01)
    acting.said = {"ns1": {1: SLAVE}}
    await acting.acting.start()
    await until(lambda: acting.services.runs)
    acting.services.may_stop.clear()
    acting.said = {"ns1": {0: MASTER, 1: SLAVE}}
    acting.acting.sync_soon()
    await until(lambda: not acting.acting.is_acting)

    stop = asyncio.create_task(acting.acting.stop())
    await turns()
    assert not stop.done()
    acting.services.may_stop.set()
    await stop
    assert not acting.services.runs
    assert not acting.services.is_cut_short


async def test_a_notice_makes_it_ask_soon_and_a_stop_ends_the_services(
    acting: Fixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(acting_master, "_PAUSE_S", 0.01)
    monkeypatch.setattr(acting_master, "_CONFIRM_S", 0.01)
    acting.said = {"ns1": {0: MASTER, 1: SLAVE}}
    async with running(acting.acting):
        await until(lambda: acting.changes == [False])
        acting.said = {"ns1": {1: SLAVE}}
        acting.acting.sync_soon()
        await until(lambda: acting.services.runs)
    assert not acting.services.runs
    assert not acting.acting.is_acting


async def test_a_failed_start_of_the_services_is_retried(acting: Fixture):
    acting.services.failures, acting.said = 1, {"ns1": {1: SLAVE}}
    await acting.acting.sync()
    with pytest.raises(OSError, match="the disk is broken"):
        await acting.acting.sync()
    assert await acting.sync(ns1={1: SLAVE})


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


async def test_an_idle_acting_master_delivers_on_while_all_name_servers_are_silent(acting: Fixture):
    seconds = [1000.0]
    lease = DeliveryLease(CONFIG, lambda: seconds[0])
    acting.acting.on_answers, acting.acting.on_silence = lease.extend, lease.holds
    assert await acting.sync(ns1={1: SLAVE})
    for _ in range(20):
        seconds[0] += 2.0
        assert await acting.sync()
    assert lease.holds()

    seconds[0] += 60.0
    await acting.sync()
    assert not lease.holds(), "it stood still, and no name server says that it still acts"
    await acting.sync(ns1={1: SLAVE})
    assert lease.holds()


OWN = Master("10.0.0.1:1", "10.0.0.1:2")
PRE_ONLINE_CONFIG = BrokerConfig(enable_slave_acting_master=True, namesrv_addr="127.0.0.1:1")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting_master, "_RETRY_S", 0.01)


def service(
    tables: SimpleNamespace,
    said: dict[str, list[Members]],
    config: BrokerConfig = PRE_ONLINE_CONFIG,
    end: int = 100,
) -> BrokerPreOnlineService:
    """Return the service of a master; each name server gives its answers in turn, then repeats the last one."""

    async def name_servers() -> list[str]:
        return list(said)

    async def fetch(name_server: str) -> Members:
        answers = said[name_server]
        if not answers:
            raise RemotingConnectError("it is dead")
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def client_of(_address: str) -> MasterClient:
        client: MasterClient = tables.client
        return client

    progress = Progress(tables.offsets, tables.schedule, tables.timer, lambda _topic, _queue: end)
    return BrokerPreOnlineService(config, name_servers, fetch, client_of, lambda: OWN, progress, tables.clock)


async def test_progress_that_is_ahead_is_taken_over(slave: SimpleNamespace, master: FakeMaster):
    # ``master`` plays the slave that acted.
    slave.offsets.commit("G", "T", 0, 5)
    slave.offsets.commit("G", "T", 1, 8)
    master.offsets.commit("G", "T", 0, 9)
    master.offsets.commit("G", "T", 1, 7)
    master.offsets.commit("G", "T", 2, 101)
    master.bodies[RequestCode.GET_ALL_DELAY_OFFSET] = b'{"offsetTable":{1:4,0:9}}'
    master.bodies[RequestCode.GET_TIMER_CHECK_POINT] = TimerCheckpoint(1000, 6, 6).encode()

    await service(slave, {"dead": [], "ns": [{0: OWN.address, 1: SLAVE}]}).start()

    assert slave.offsets.offsets_of("G", "T") == {0: 9, 1: 8}, "not what lies beyond the end of a queue"
    assert slave.schedule.offset_table == {1: 4}
    assert slave.timer.checkpoint().last_timer_queue_offset == 6
    assert master.announced == [(OWN.ha_address, OWN.address)]


async def test_a_slave_that_does_not_answer_is_asked_until_it_is_gone(
    slave: SimpleNamespace, master: FakeMaster, caplog: pytest.LogCaptureFixture
):
    await master.stop()

    await service(slave, {"ns": [{1: SLAVE}, {1: SLAVE}, {}]}).start()

    assert f"the slave {SLAVE} does not hand over" in caplog.text
    assert "delivered twice" not in caplog.text


async def test_a_master_waits_for_a_name_server_and_for_slaves_to_register_there(
    slave: SimpleNamespace, master: FakeMaster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(acting_master, "_REGISTER_S", 10.0)
    master.offsets.commit("G", "T", 0, 9)
    said: dict[str, list[Members]] = {"ns": []}

    async with asyncio.TaskGroup() as group:
        start = group.create_task(service(slave, said).start())
        await until(lambda: "ns names no slaves" in caplog.text)
        said["ns"] = [{}, {1: SLAVE}]
        await start

    assert slave.offsets.query("G", "T", 0) == 9


async def test_without_a_slave_it_does_not_wait(slave: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(acting_master, "_RETRY_S", 60.0)
    await service(slave, {"dead": [], "ns": [{}]}).start()


async def test_offsets_that_were_not_committed_at_the_slave_stay(slave: SimpleNamespace, master: FakeMaster):
    slave.offsets.commit("G", "T", 0, 5)
    master.offsets.commit("G", "T", 0, 9)
    master.offsets.keep_commits()
    master.offsets.commit("G", "T", 1, 7)

    await service(slave, {"ns": [{1: SLAVE}]}).start()

    assert slave.offsets.offsets_of("G", "T") == {0: 5, 1: 7}


async def test_progress_of_another_log_is_left_alone(
    slave: SimpleNamespace, master: FakeMaster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(acting_master, "LIMIT_S", 0.5)
    master.announce_answer = response(ResponseCode.SYSTEM_ERROR, "the log differs")
    master.offsets.commit("G", "T", 0, 9)
    master.bodies[RequestCode.GET_ALL_DELAY_OFFSET] = b'{"offsetTable":{1:4}}'

    await service(slave, {"ns": [{1: SLAVE}]}).start()

    assert slave.offsets.query("G", "T", 0) == -1
    assert slave.schedule.offset_table == {}
    assert "the log differs; retrying" in caplog.text


async def test_a_slave_that_never_acts_has_nothing_to_take_over(slave: SimpleNamespace, master: FakeMaster):
    master.announce_answer = response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    master.offsets.commit("G", "T", 0, 9)

    await service(slave, {"ns": [{1: SLAVE}]}).start()

    assert slave.offsets.query("G", "T", 0) == -1


async def test_a_broken_slave_keeps_its_master_away_for_a_limited_time(
    slave: SimpleNamespace, master: FakeMaster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(acting_master, "LIMIT_S", 0.2)
    master.bodies[RequestCode.GET_ALL_CONSUMER_OFFSET] = b"garbage"

    await service(slave, {"ns": [{1: SLAVE}]}).start()

    assert "messages may be delivered twice" in caplog.text


@pytest.mark.parametrize(
    "config",
    [
        BrokerConfig(namesrv_addr="127.0.0.1:1"),
        BrokerConfig(enable_slave_acting_master=True, namesrv_addr="127.0.0.1:1", skip_pre_online=True),
        BrokerConfig(enable_slave_acting_master=True),
    ],
)
async def test_the_step_may_be_off(slave: SimpleNamespace, master: FakeMaster, config: BrokerConfig):
    master.offsets.commit("G", "T", 0, 9)

    await service(slave, {"ns": [{1: SLAVE}]}, config).start()

    assert slave.offsets.query("G", "T", 0) == -1
