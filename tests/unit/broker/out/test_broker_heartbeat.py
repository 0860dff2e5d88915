"""Heartbeats go over living connections alone; a lost one is registered again."""

from rocketbroker.broker.out.broker_heartbeat import BrokerHeartbeat
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import RemotingConnectError
from tests.support.running import running
from tests.support.waiting import until


class Client:
    """Connections to some addresses, one of which breaks when it is used."""

    def __init__(self) -> None:
        self.connected = {"ns1", "breaks"}
        self.sent: list[tuple[str, int]] = []

    def is_connected(self, address: str) -> bool:
        return address in self.connected

    async def invoke_oneway(self, address: str, command: Command) -> None:
        if address == "breaks":
            raise RemotingConnectError("it breaks")
        self.sent.append((address, command.code))


class Registration:
    def heartbeat(self) -> Command:
        return Command(RequestCode.BROKER_HEARTBEAT)


def made(client: Client, registrations: list[int], *, acts: bool) -> BrokerHeartbeat:
    config = BrokerConfig(broker_heartbeat_interval=100, enable_slave_acting_master=acts)
    return BrokerHeartbeat(
        config,
        client,  # type: ignore[arg-type]
        Registration(),  # type: ignore[arg-type]
        lambda: ["ns1", "breaks", "lost"],
        lambda: registrations.append(1),
    )


async def test_each_name_server_gets_heartbeats():
    client, registrations = Client(), list[int]()
    async with running(made(client, registrations, acts=True)):
        await until(lambda: len(client.sent) >= 2)
    assert set(client.sent) == {("ns1", RequestCode.BROKER_HEARTBEAT)}
    assert registrations, "the lost one gets a registration"


async def test_without_the_mode_there_are_none():
    client = Client()
    heartbeat = made(client, [], acts=False)
    async with running(heartbeat):
        assert not heartbeat._tasks._tasks
    assert client.sent == []
