"""Tests of the progress that a returning master takes over from its slaves before it registers."""

import asyncio
from types import SimpleNamespace

import pytest

from rocketbroker.broker.out.master_address import Master
from rocketbroker.broker.out.member_group import Members
from rocketbroker.broker.slave import broker_pre_online
from rocketbroker.broker.slave.broker_pre_online import BrokerPreOnlineService, Progress
from rocketbroker.broker.slave.master_client import MasterClient
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.codec.storefile.checkpoint_layout import TimerCheckpoint
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import RemotingConnectError
from tests.support.fake_master import FakeMaster

OWN = Master("10.0.0.1:1", "10.0.0.1:2")
SLAVE = "10.0.0.2:1"
CONFIG = BrokerConfig(enable_slave_acting_master=True, namesrv_addr="127.0.0.1:1")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_pre_online, "_RETRY_S", 0.01)


def service(
    tables: SimpleNamespace, said: dict[str, list[Members]], config: BrokerConfig = CONFIG, end: int = 100
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
    slave: SimpleNamespace, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(broker_pre_online, "_REGISTER_S", 0.05)
    master.offsets.commit("G", "T", 0, 9)
    said: dict[str, list[Members]] = {"ns": []}

    async with asyncio.TaskGroup() as group:
        start = group.create_task(service(slave, said).start())
        await asyncio.sleep(0.03)
        said["ns"] = [{}, {1: SLAVE}]
        await start

    assert slave.offsets.query("G", "T", 0) == 9


async def test_without_a_slave_it_does_not_wait(slave: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(broker_pre_online, "_RETRY_S", 60.0)
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
    monkeypatch.setattr(broker_pre_online, "LIMIT_S", 0.05)
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
    monkeypatch.setattr(broker_pre_online, "LIMIT_S", 0.2)
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
