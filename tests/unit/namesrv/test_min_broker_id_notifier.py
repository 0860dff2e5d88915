"""Notifications of a changed smallest broker id."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.route import BrokerData
from rocketbroker.codec.remoting.handler import MethodTable
from rocketbroker.codec.remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config import NamesrvConfig
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.namesrv.broker_table import BrokerLiveInfo
from rocketbroker.namesrv.min_broker_id_notifier import MinBrokerIdNotifier, MinBrokerIdSender, is_own_host
from rocketbroker.transport.remoting_client import RemotingClient
from rocketbroker.transport.remoting_server import RemotingServer
from tests.support.fakes import FakeConnection

Told = list[tuple[str, NotifyMinBrokerIdChangeRequestHeader]]


def notifier(told: Told, enabled: str = "true") -> MinBrokerIdNotifier:
    config = NamesrvConfig.model_validate({"notifyMinBrokerIdChanged": enabled})
    return MinBrokerIdNotifier(config, lambda *said: told.append(said))


@pytest.fixture
def group() -> BrokerData:
    return BrokerData("C", "broker-a", {0: "h:0", 1: "h:1", 2: "h:2"}, enable_acting_master=True)


def test_the_others_hear_of_a_newcomer(group: BrokerData) -> None:
    told: Told = []
    notifier(told).smaller_id_came(group, "ha:0")
    header = NotifyMinBrokerIdChangeRequestHeader(0, None, "h:0", None, "ha:0")
    assert told == [("h:1", header), ("h:2", header)]


def test_all_hear_of_one_that_left(group: BrokerData) -> None:
    told: Told = []
    notifier(told).smallest_id_left(group, "h:gone")
    header = NotifyMinBrokerIdChangeRequestHeader(0, None, "h:0", "h:gone", None)
    assert told == [("h:0", header), ("h:1", header), ("h:2", header)]


def test_nobody_is_notified_if_no_slave_may_act_as_master(group: BrokerData) -> None:
    told: Told = []
    group.enable_acting_master = False
    notifier(told).smallest_id_left(group, "h:gone")
    assert told == []


def test_nobody_is_notified_if_it_is_off(group: BrokerData) -> None:
    told: Told = []
    notifier(told, "false").smaller_id_came(group, "ha:0")
    notifier(told, "false").smallest_id_left(group, "h:gone")
    assert told == []


def test_a_single_broker_hears_of_itself() -> None:
    told: Told = []
    notifier(told).smaller_id_came(BrokerData("C", "broker-a", {0: "h:0"}), "ha:0")
    assert [address for address, _ in told] == ["h:0"]


HEADER = NotifyMinBrokerIdChangeRequestHeader(min_broker_id=0, min_broker_addr="h:1")


class Broker:
    """A listening broker that keeps its notifications."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[Command] = asyncio.Queue()
        table = MethodTable()
        table.add(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, self._listen)
        self.server = RemotingServer(table.routes, host="127.0.0.1")

    def _listen(self, _connection: object, command: Command) -> Command:
        self.told.put_nowait(command)
        return response()


class Sending:
    """A sender with the live brokers that it knows."""

    def __init__(self) -> None:
        self.live: dict[str, BrokerLiveInfo] = {}
        self.client = RemotingClient()
        self.tasks = TaskOwner("test")
        self.sender = MinBrokerIdSender(self.live, self.client, self.tasks)

    def register(self, address: str, connection: FakeConnection) -> FakeConnection:
        self.live[address] = BrokerLiveInfo("C", "a", 0, 0.0, 120.0, DataVersion(), connection, "")
        return connection


@pytest.fixture
async def sending() -> AsyncIterator[Sending]:
    parts = Sending()
    yield parts
    await parts.tasks.stop()
    await parts.client.stop()


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    listening = Broker()
    await listening.server.start()
    yield listening
    await listening.server.stop()


async def test_a_broker_is_connected_to_on_its_own_host(sending: Sending, broker: Broker) -> None:
    address = f"127.0.0.1:{broker.server.port}"
    connection = sending.register(address, FakeConnection())
    sending.sender.send(address, HEADER)
    told = await asyncio.wait_for(broker.told.get(), 60)
    assert told.header == {"minBrokerId": "0", "minBrokerAddr": "h:1"}
    assert connection.sent == []


async def test_an_address_elsewhere_is_never_connected_to(sending: Sending, broker: Broker) -> None:
    address = f"127.0.0.1:{broker.server.port}"
    connection = FakeConnection("192.0.2.1:50000")
    connection.remote_host = bytes([192, 0, 2, 1, 0, 0, 0, 1])
    sending.register(address, connection)
    sending.sender.send(address, HEADER)
    (sent,) = connection.sent
    assert (sent.code, sent.header) == (RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, HEADER)
    assert len(sending.tasks) == 0
    assert broker.told.empty()


async def test_unregistered_brokers_are_not_notified(sending: Sending) -> None:
    sending.sender.send("127.0.0.1:1", HEADER)
    assert len(sending.tasks) == 0


async def test_one_task_at_a_time_sends_to_an_address(sending: Sending, caplog: pytest.LogCaptureFixture) -> None:
    sending.register("127.0.0.1:1", FakeConnection())
    for _ in range(1000):
        sending.sender.send("127.0.0.1:1", HEADER)
    (task,) = sending.tasks._tasks
    await task
    assert caplog.text.count("could not be notified of the smallest broker id") == 1


@pytest.mark.parametrize(
    ("address", "host", "expected"),
    [
        ("127.0.0.1:10911", bytes([127, 0, 0, 1]), True),
        ("127.0.0.2:10911", bytes([127, 0, 0, 1]), False),
        ("[::1]:10911", bytes(15) + b"\x01", True),
        ("localhost:10911", bytes([127, 0, 0, 1]), False),
    ],
)
def test_the_host_of_an_address_is_compared_with_the_peer(address: str, host: bytes, expected: bool) -> None:
    connection = FakeConnection()
    connection.remote_host = host + bytes(4)
    assert is_own_host(address, connection) is expected
