"""Answers of a synchronous master: which messages wait for slaves, and what is said when none has them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.broker_replication import ANY_ROLE, MASTER, ActingParts, BrokerRole, RoleParts, bind_ha
from rocketbroker.app.launch.dev_server import broker_settings
from rocketbroker.broker.registration.namesrv_link import Master, MasterAddress
from rocketbroker.codec.message.message_batch import encode_batch
from rocketbroker.codec.remoting.headers.message import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, ConfigError
from rocketbroker.common.lifecycle import PartList
from rocketbroker.transport.remoting_client import RemotingClient
from rocketbroker.transport.remoting_server import close_sockets, port_of
from tests.support.fakes import FakeClock
from tests.support.ports import LOOPBACK, free_ports
from tests.support.running import running, stopping

pytestmark = [
    pytest.mark.proves("A log that copies another's", "answers that wait for slaves"),
]


class FakePart:
    """Notes its starts and stops."""

    def __init__(self, name: str, noted: list[str], fails: str = "") -> None:
        self._name = name
        self._noted = noted
        self._fails = fails

    async def start(self) -> None:
        self._note("start")

    async def stop(self) -> None:
        self._note("stop")

    def _note(self, what: str) -> None:
        self._noted.append(f"{what} {self._name}")
        if what == self._fails:
            raise ValueError(self._name)


@pytest.fixture
def noted() -> list[str]:
    return []


@pytest.fixture
def parts(noted: list[str]) -> RoleParts:
    return RoleParts(
        (ANY_ROLE, FakePart("store", noted)),
        (MASTER, FakePart("schedule", noted)),
        (MASTER, FakePart("timer", noted)),
        (ANY_ROLE, FakePart("server", noted)),
    )


async def test_parts_start_in_order_and_stop_in_reverse_order(parts: RoleParts, noted: list[str]):
    await parts.take_role(BrokerRole.ASYNC_MASTER)
    started = ["start store", "start schedule", "start timer", "start server"]
    assert (parts.role, noted) == (BrokerRole.ASYNC_MASTER, started)
    noted.clear()

    await parts.stop()

    assert (parts.role, noted) == (None, ["stop server", "stop timer", "stop schedule", "stop store"])


async def test_a_role_stops_the_parts_of_the_other_while_the_rest_runs(parts: RoleParts, noted: list[str]):
    await parts.take_role(BrokerRole.ASYNC_MASTER)
    noted.clear()

    await parts.take_role(BrokerRole.SLAVE)
    assert noted == ["stop timer", "stop schedule"]
    await parts.take_role(BrokerRole.ASYNC_MASTER)
    assert noted[2:] == ["start schedule", "start timer"]
    noted.clear()
    await parts.stop()

    assert noted == ["stop server", "stop timer", "stop schedule", "stop store"]


async def test_parts_are_arranged_after_those_that_ask_for_the_role(noted: list[str]):
    parts = RoleParts()
    assert not parts.is_master
    parts.arrange((ANY_ROLE, FakePart("store", noted)), (MASTER, FakePart("schedule", noted)))

    await parts.take_role(BrokerRole.SYNC_MASTER)

    assert (parts.is_master, noted) == (True, ["start store", "start schedule"])
    await parts.take_role(BrokerRole.SLAVE)
    assert (parts.is_master, noted[2:]) == (False, ["stop schedule"])
    await parts.stop()


async def test_a_slave_starts_without_the_parts_of_a_master(parts: RoleParts, noted: list[str]):
    await parts.take_role(BrokerRole.SLAVE)

    assert noted == ["start store", "start server"]


async def test_a_failed_start_leaves_the_parts_that_run_to_the_stop(noted: list[str]):
    parts = RoleParts((ANY_ROLE, FakePart("store", noted)), (ANY_ROLE, FakePart("server", noted, fails="start")))

    with pytest.raises(ValueError, match="server"):
        await parts.take_role(BrokerRole.ASYNC_MASTER)
    assert parts.role is None
    await parts.stop()

    assert noted == ["start store", "start server", "stop store"]


async def test_a_part_that_does_not_stop_keeps_no_other_running(noted: list[str], caplog: pytest.LogCaptureFixture):
    parts = RoleParts((ANY_ROLE, FakePart("store", noted)), (ANY_ROLE, FakePart("server", noted, fails="stop")))
    await parts.take_role(BrokerRole.ASYNC_MASTER)

    await parts.stop()

    assert noted[2:] == ["stop server", "stop store"]
    assert [record.getMessage() for record in caplog.records] == ["FakePart did not stop cleanly"]


LIMIT_S = 60
UNIQUE = "UNIQ_KEY\x01AC11000104D2DEADBEEF000000000001\x02"


class Sender:
    """Sends requests to a broker."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self._address = address

    async def send(self, properties: str = "", *, batch: bool = False) -> Command:
        header = SendMessageRequestHeader("PG", "T", "TBW102", 4, 0, 0, 0, 0, properties + UNIQUE, 0, batch=batch)
        body = encode_batch([(0, b"a", b""), (0, b"b", b"")]) if batch else b"body"
        return await self.ask(request(RequestCode.SEND_MESSAGE, header, body))

    async def ask(self, command: Command) -> Command:
        return await self._client.invoke(self._address, command, LIMIT_S)


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
async def alone(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Sender]:
    """A synchronous master whose slave is missing."""
    properties = {
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": "2",
        "slaveTimeout": "30",
        "flushDiskType": request.param,
    }
    broker = BrokerController.bind(broker_settings(0, tmp_path, "", properties=properties))
    async with running(broker), stopping(RemotingClient()) as client:
        yield Sender(client, f"{LOOPBACK}:{broker.port}")


@pytest.mark.parametrize(
    ("properties", "batch"),
    [
        ("", False),
        ("WAIT\x01true\x02", False),
        ("", True),
        ("DELAY\x013\x02", False),
        ("TIMER_DELAY_SEC\x0130\x02", False),
        ("TRAN_MSG\x01true\x02PGROUP\x01PG\x02", False),
    ],
    ids=["single", "waiting", "batch", "delayed", "timer", "half"],
)
async def test_a_message_that_no_slave_has_is_stored_and_answered_with_its_place(
    alone: Sender, properties: str, batch: bool
):
    answer = await alone.send(properties, batch=batch)

    assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert "not on 1 slaves within 30 ms (inSyncReplicas, slaveTimeout)" in (answer.remark or "")
    assert answer.header["queueOffset"] == "0"


@pytest.fixture(params=[{}, {"enableAutoInSyncReplicas": "true", "minInSyncReplicas": "2"}], ids=["fixed", "adapts"])
async def acting_alone(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Sender]:
    """A synchronous master whose slave may act as master, and is missing."""
    properties = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "enableSlaveActingMaster": "true"}
    broker = BrokerController.bind(broker_settings(0, tmp_path, "", properties=properties | request.param))
    async with running(broker), stopping(RemotingClient()) as client:
        yield Sender(client, f"{LOOPBACK}:{broker.port}")


@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
async def test_a_send_that_needs_more_brokers_than_are_in_sync_is_not_stored(acting_alone: Sender, batch: bool):
    for answer in await asyncio.gather(*(acting_alone.send(batch=batch) for _ in range(5))):
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("[IN_SYNC_REPLICAS_NOT_ENOUGH] in-sync replicas not enough: 0 slaves")

    assert (await acting_alone.send("WAIT\x01false\x02")).header["queueOffset"] == "0", "nothing was stored before"


async def test_a_message_that_does_not_want_to_wait_and_a_copy_of_the_broker_wait_for_no_slave(alone: Sender):
    sent = await alone.send("WAIT\x01false\x02")
    assert sent.code == ResponseCode.SUCCESS

    back = ConsumerSendMsgBackRequestHeader(0, "CG", 3)
    answer = await alone.ask(request(RequestCode.CONSUMER_SEND_MSG_BACK, back))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_many_sends_at_once_are_answered_each(alone: Sender):
    answers = await asyncio.gather(*(alone.send() for _ in range(30)))

    assert {answer.code for answer in answers} == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
    assert sorted(int(answer.header["queueOffset"]) for answer in answers) == list(range(30))


async def test_one_replica_is_the_master_alone_as_in_rocketmq(tmp_path: Path):
    broker = BrokerController.bind(broker_settings(0, tmp_path, "", properties={"brokerRole": "SYNC_MASTER"}))
    async with running(broker), stopping(RemotingClient()) as client:
        assert (await Sender(client, f"{LOOPBACK}:{broker.port}").send()).code == ResponseCode.SUCCESS


def test_the_ha_port_is_named_if_it_is_in_use(tmp_path: Path):
    port = free_ports(1)
    settings = broker_settings(port, tmp_path, "")
    held = bind_ha(settings, any_port=False)
    held[0].listen()
    try:
        assert port_of(held[0]) == port + 1
        with pytest.raises(ConfigError, match=rf"Port {port + 1} is for slaves \(haListenPort\)"):
            bind_ha(settings, any_port=False)
        other = bind_ha(settings, any_port=True)
        assert port_of(other[0]) not in {0, port + 1}
        close_sockets(other)
    finally:
        close_sockets(held)


def test_a_slave_has_no_ha_port(tmp_path: Path):
    properties = {"brokerRole": "SLAVE", "brokerId": "1"}
    assert bind_ha(broker_settings(0, tmp_path, "", properties=properties), any_port=True) == []


A = Master("10.0.0.1:10911", "10.0.0.1:10912")
B = Master("10.0.0.2:10911", "10.0.0.2:10912")


class Log:
    """The log of a slave: ``fits`` is the result of its comparison."""

    def __init__(self, *, fits: bool) -> None:
        self.fits = fits
        self.comparisons = 0
        self.is_fed = False
        self.problem = "" if fits else "the master's log ends at 7"

    def compare_again(self) -> None:
        self.comparisons += 1

    async def is_compared(self, _timeout_s: float) -> bool:
        return self.fits


def slave(log: Log, *, mode: bool = True) -> tuple[ActingParts, MasterAddress]:
    """Return the parts of a slave that no name server has answered yet."""
    address = MasterAddress(lambda: "10.0.0.9:10911")
    outer_api = SimpleNamespace(find_name_servers=None, register_all=None, registered_at=None, name_servers=None)
    network: Any = SimpleNamespace(client=None, registration=None, outer_api=outer_api, master_address=address)
    unused: Any = None
    settings = BrokerConfig(broker_id=1, enable_slave_acting_master=mode)
    client: Any = log
    parts = ActingParts(settings, network, unused, client, PartList(), unused, FakeClock())
    return parts, address


async def test_a_slave_hands_over_once_its_log_was_compared():
    log = Log(fits=True)
    parts, address = slave(log)

    await parts.hand_over(A)

    assert (log.comparisons, address.master) == (1, A)


async def test_a_slave_with_messages_that_the_master_lacks_does_not_hand_over():
    parts, _ = slave(Log(fits=False))
    with pytest.raises(BrokerResponseError, match=r"not known to have all messages.*ends at 7") as error:
        await parts.hand_over(A)
    assert error.value.code == ResponseCode.SYSTEM_ERROR


async def test_a_slave_follows_no_other_master_than_that_of_its_name_servers():
    log = Log(fits=True)
    parts, address = slave(log)
    address.registered("ns1", A)

    with pytest.raises(BrokerResponseError, match=r"10\.0\.0\.2:10911 cannot be the master") as error:
        await parts.hand_over(B)

    assert error.value.code == ResponseCode.INVALID_PARAMETER
    assert (log.comparisons, address.master) == (0, A)


async def test_a_slave_without_the_mode_follows_no_announced_master():
    log = Log(fits=True)
    parts, address = slave(log, mode=False)

    with pytest.raises(BrokerResponseError, match="enableSlaveActingMaster is false") as error:
        await parts.hand_over(A)

    assert error.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (log.comparisons, address.master) == (0, Master())
