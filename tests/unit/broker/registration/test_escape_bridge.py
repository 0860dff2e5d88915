"""Messages of an acting master at the other masters of its cluster."""

from typing import Any

import pytest

from rocketbroker.broker.registration import escape_bridge
from rocketbroker.broker.registration.escape_bridge import EscapeBridge
from rocketbroker.broker.registration.topic_route_info_manager import TopicRouteInfoManager
from rocketbroker.codec.message.message_const import (
    BORNHOST_V6_FLAG,
    STOREHOSTADDRESS_V6_FLAG,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
)
from rocketbroker.codec.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import RemotingConnectError
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageStatus

ROUTE = TopicRouteData(
    queue_datas=[
        QueueData("broker-a", 4, 4, 4),
        QueueData("broker-b", 2, 2, 6),
        QueueData("read-only", 2, 2, 4),
        QueueData("no-master", 2, 2, 6),
        QueueData("foreign", 2, 2, 6),
    ],
    broker_datas=[
        BrokerData("C", "broker-a", {0: "own:1"}),
        BrokerData("C", "broker-b", {0: "b:1", 1: "b:2"}),
        BrokerData("C", "read-only", {0: "r:1"}),
        BrokerData("C", "no-master", {1: "n:1"}),
        BrokerData("D", "foreign", {0: "f:1"}),
    ],
)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(escape_bridge, "_RETRY_S", 0.0)


class Client:
    """Name servers ``dead`` and ``ns``, and masters that answer ``code``."""

    def __init__(self) -> None:
        self.route = ROUTE
        self.code: int = ResponseCode.SUCCESS
        self.routes_asked = 0
        self.sent: list[tuple[str, Any, bytes]] = []

    async def invoke(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
        if address == "dead":
            raise RemotingConnectError("it is dead")
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            self.routes_asked += 1
            return response(body=self.route.encode()) if command.header.topic == "T" else response(17, "no such topic")
        self.sent.append((address, command.header, bytes(command.body)))
        return response(self.code, "why not")


def message(properties: bytes = b"", topic: str = "T", **fields: Any) -> MessageExtBrokerInner:
    return MessageExtBrokerInner(topic, 9, memoryview(b"body"), properties, **fields)


def bridge_of(config: BrokerConfig, client: Any, name_servers: list[str]) -> EscapeBridge:
    return EscapeBridge(config, client, TopicRouteInfoManager(config, client, lambda: name_servers).fetch)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def bridge(client: Client) -> EscapeBridge:
    config = BrokerConfig(broker_cluster_name="C", broker_name="broker-a", broker_id=1)
    return bridge_of(config, client, ["dead", "ns"])


async def test_messages_go_to_the_queues_of_other_masters_of_the_cluster_in_turn(bridge: EscapeBridge, client: Client):
    for _ in range(4):
        assert (await bridge.put(message())).status is PutMessageStatus.PUT_OK

    assert [(address, header.queue_id) for address, header, _ in client.sent] == [("b:1", 1), ("b:1", 0)] * 2
    assert client.routes_asked == 1


async def test_a_message_keeps_its_content_and_is_not_delayed_but_waited_for(bridge: EscapeBridge, client: Client):
    flags = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG
    properties = b"TAGS\x01a\x02DELAY\x013\x02WAIT\x01false\x02"

    await bridge.put(message(properties, flag=7, sys_flag=1 | flags, born_timestamp=5, reconsume_times=2))

    [(_, header, body)] = client.sent
    assert body == b"body"
    assert header.properties == "TAGS\x01a\x02", "no longer than they were, and without WAIT a master waits"
    assert (header.topic, header.flag, header.sys_flag, header.born_timestamp, header.reconsume_times) == (
        "T",
        7,
        1,
        5,
        2,
    )
    assert header.producer_group == "InnerProducerGroup_broker-a_1"
    assert header.max_reconsume_times == 2, "else a message with many retries becomes a dead letter"


async def test_a_retried_message_of_a_committed_transaction_is_no_half_message(bridge: EscapeBridge, client: Client):
    properties = b"TRAN_MSG\x01true\x02PGROUP\x01PG\x02DELAY\x013\x02"

    await bridge.put(message(properties, sys_flag=TRANSACTION_COMMIT_TYPE, reconsume_times=1))

    [(_, header, _)] = client.sent
    assert (header.properties, header.sys_flag) == ("PGROUP\x01PG\x02", 0)


async def test_a_half_message_keeps_its_producer_group(bridge: EscapeBridge, client: Client):
    await bridge.put(message(b"PGROUP\x01PG\x02TRAN_MSG\x01true\x02", sys_flag=TRANSACTION_PREPARED_TYPE))
    header = client.sent[0][1]
    assert (header.producer_group, header.sys_flag) == ("PG", TRANSACTION_PREPARED_TYPE)
    assert "TRAN_MSG\x01true" in header.properties


@pytest.mark.parametrize(
    "code", [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE]
)
async def test_a_message_that_is_stored_is_not_sent_again(bridge: EscapeBridge, client: Client, code: ResponseCode):
    client.code = code
    assert (await bridge.put(message())).status is PutMessageStatus.PUT_OK


async def test_a_rejected_message_is_retried_by_its_owner_with_a_new_route(bridge: EscapeBridge, client: Client):
    client.code = ResponseCode.SYSTEM_BUSY
    result = await bridge.put(message())

    assert result.status is PutMessageStatus.SLAVE
    assert result.reason == "no other master takes it: b:1 answers 2 why not"
    client.code = ResponseCode.SUCCESS
    assert (await bridge.put(message())).status is PutMessageStatus.PUT_OK
    assert client.routes_asked == 2


async def test_without_another_master_a_message_waits(bridge: EscapeBridge, client: Client):
    assert "ns answers 17 no such topic" in (await bridge.put(message(topic="U"))).reason
    client.route = TopicRouteData()
    assert "none of the cluster has topic T with write permission" in (await bridge.put(message())).reason


async def test_without_a_name_server_a_message_waits(client: Client):
    bridge = bridge_of(BrokerConfig(), client, [])
    assert "no name server is known" in (await bridge.put(message())).reason
