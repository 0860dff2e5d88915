"""The broker of this process behind the front: answers of every kind, held requests, and clients that go."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="the extra grpc is not installed")

from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import HELD, Answer, Audience, Connection, InTurn, Route
from rocketbroker.codec.remoting.headers.message import SendMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, RemotingSendError
from rocketbroker.proxy.call_context import header_of
from rocketbroker.proxy.local_service_manager import LocalConnection, LocalServiceManager
from tests.support.running import running
from tests.support.waiting import turns

CODE = RequestCode.POP_MESSAGE


class Channel:
    """A client without a stream."""

    def __init__(self, remote_address: str = "10.0.0.1:5000") -> None:
        self.client_id, self.remote_address = "client-1", remote_address
        self.asked: list[Command] = []

    def send_oneway(self, command: Command) -> bool:
        self.asked.append(command)
        return True

    async def invoke(self, command: Command, timeout_s: float) -> Command:
        raise RemotingSendError(f"no stream for {command.code} within {timeout_s}")


class Broker:
    """LocalBroker whose one code is processed by a function of the test."""

    broker_name, cluster_name, address = "broker-a", "DefaultCluster", "10.0.0.9:10911"

    def __init__(self) -> None:
        self.answer: Any = response()
        self.asked: list[tuple[Connection, Command]] = []
        self.dropped: list[Command] = []
        self.closed: list[Connection] = []
        self.batches = 0
        self.routes = {
            int(CODE): Route(CODE, self.process, audience=Audience.CLIENT),
            int(RequestCode.DELETE_TOPIC_IN_BROKER): Route(RequestCode.DELETE_TOPIC_IN_BROKER, self.process),
        }

    def process(self, connection: Connection, command: Command) -> Answer:
        self.asked.append((connection, command))
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: Answer = self.answer
        return answer

    def topic_config(self, topic: str) -> TopicConfig | None:
        return TopicConfig(topic, 3, 2) if topic == "Orders" else None

    def subscription_group_config(self, group: str) -> SubscriptionGroupConfig | None:
        return SubscriptionGroupConfig(group) if group == "billing" else None

    def end_batch(self) -> None:
        self.batches += 1

    def drop_held(self, connection: Connection, command: Command) -> None:
        self.dropped.append(command)

    def connection_closed(self, connection: Connection) -> None:
        self.closed.append(connection)


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
async def brokers(broker: Broker) -> AsyncIterator[LocalServiceManager]:
    async with running(LocalServiceManager(broker)) as brokers:
        yield brokers


async def answered(work: Command | Awaitable[Command]) -> Command:
    return work if isinstance(work, RemotingCommand) else await work


# -- routes and settings


async def test_a_route_has_this_broker_alone(brokers: LocalServiceManager):
    route = await brokers.topic_route("Orders")

    [queues], [data] = route.queue_datas, route.broker_datas
    assert (queues.broker_name, queues.read_queue_nums, queues.write_queue_nums, queues.perm) == ("broker-a", 3, 2, 6)
    assert (data.cluster, data.broker_addrs) == ("DefaultCluster", {0: "10.0.0.9:10911"})


async def test_what_the_broker_lacks_is_refused(brokers: LocalServiceManager):
    with pytest.raises(BrokerResponseError, match="Other") as topic:
        await brokers.topic_route("Other")
    with pytest.raises(BrokerResponseError, match="shop") as group:
        await brokers.subscription_group_config("shop")

    assert topic.value.code == ResponseCode.TOPIC_NOT_EXIST
    assert group.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert (await brokers.subscription_group_config("billing")).group_name == "billing"


# -- requests


async def coroutine(answer: Any) -> Any:
    await asyncio.sleep(0)
    return answer


async def test_an_answer_at_hand_needs_no_task(broker: Broker, brokers: LocalServiceManager):
    answer = brokers.invoke(Channel(), "broker-a", request(CODE))

    assert isinstance(answer, RemotingCommand)
    assert answer.code == ResponseCode.SUCCESS


async def test_answers_come_in_each_form_of_a_processor(broker: Broker, brokers: LocalServiceManager):
    header = SendMessageResponseHeader("id", 3, 5)
    frame = encode_frame(response(header=header, body=b"body"))
    forms = [frame, [frame[:7], frame[7:]], response(header=header, body=b"body")]
    for broker.answer in [*forms, *map(coroutine, forms), *(InTurn(coroutine(each)) for each in forms)]:
        answer = await answered(brokers.invoke(Channel(), "", request(CODE)))
        assert header_of(answer, SendMessageResponseHeader).queue_offset == 5
        assert (answer.code, bytes(answer.body)) == (ResponseCode.SUCCESS, b"body")


async def failing(error: Exception) -> Any:
    raise error


async def test_errors_of_a_processor_are_answers(
    broker: Broker, brokers: LocalServiceManager, caplog: pytest.LogCaptureFixture
):
    refused, broken = BrokerResponseError(ResponseCode.SYSTEM_BUSY, "wait"), ValueError("wrong")
    codes = []
    for broker.answer in (refused, failing(refused), broken, failing(broken)):
        answer = await answered(brokers.invoke(Channel(), "broker-a", request(CODE)))
        codes.append((answer.code, answer.remark))

    assert codes == [(ResponseCode.SYSTEM_BUSY, "wait")] * 2 + [(ResponseCode.SYSTEM_ERROR, "ValueError: wrong")] * 2
    assert caplog.messages == [f"request code {int(CODE)} failed"] * 2


@pytest.mark.parametrize(
    ("broker_name", "code", "answer"),
    [
        ("broker-b", CODE, ResponseCode.SYSTEM_ERROR),
        ("", RequestCode.DELETE_TOPIC_IN_BROKER, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        ("", RequestCode.PULL_MESSAGE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
    ],
)
async def test_clients_of_the_port_cannot_ask_for_more(
    broker: Broker, brokers: LocalServiceManager, broker_name: str, code: RequestCode, answer: ResponseCode
):
    refused = await answered(brokers.invoke(Channel(), broker_name, request(code)))

    assert refused.code == answer
    assert broker.asked == []


async def test_requests_of_one_turn_are_dispatched_together(broker: Broker, brokers: LocalServiceManager):
    for _ in range(5):
        brokers.invoke(Channel(), "", request(CODE))
    assert broker.batches == 0
    await turns(2)
    assert broker.batches == 1
    brokers.invoke(Channel(), "", request(CODE))
    await turns(2)

    assert broker.batches == 2


# -- held requests


class Holding:
    """A request of a client that the broker holds."""

    def __init__(self, broker: Broker, brokers: LocalServiceManager) -> None:
        broker.answer = HELD
        self.channel, self.command = Channel(), request(CODE)
        self.answer = asyncio.ensure_future(answered(brokers.invoke(self.channel, "", self.command)))
        connection, _ = broker.asked[-1]
        assert isinstance(connection, LocalConnection)
        self.connection = connection

    @property
    def held(self) -> int:
        return len(self.connection.held)


@pytest.fixture
async def holding(broker: Broker, brokers: LocalServiceManager) -> Holding:
    return Holding(broker, brokers)


async def test_a_held_request_is_answered_later(holding: Holding):
    await turns(2)
    assert not holding.answer.done()
    holding.connection.answer(holding.command, lambda: response(body=b"1"))
    holding.connection.answer(holding.command, lambda: response(body=b"too late"))

    assert (await holding.answer).body == b"1"
    assert holding.held == 0


async def test_a_held_request_may_be_held_on(holding: Holding):
    holding.connection.answer(holding.command, lambda: HELD)
    assert holding.held == 1
    holding.connection.answer(holding.command, lambda: InTurn(coroutine(response(body=b"1"))))

    assert (await holding.answer).body == b"1"


async def test_an_error_answers_a_held_request(holding: Holding, caplog: pytest.LogCaptureFixture):
    def fail() -> Answer:
        raise ValueError("wrong")

    holding.connection.answer(holding.command, fail)

    assert (await holding.answer).remark == "ValueError: wrong"
    assert caplog.messages == [f"request code {int(CODE)} failed"]


async def test_a_dropped_request_ends_at_the_broker(broker: Broker, brokers: LocalServiceManager, holding: Holding):
    brokers.drop(holding.channel, holding.command)
    brokers.drop(holding.channel, holding.command)
    brokers.drop(Channel(), holding.command)

    assert (await holding.answer).code == ResponseCode.POLLING_TIMEOUT
    assert broker.dropped == [holding.command]
    assert holding.held == 0


async def test_an_answer_under_way_is_not_dropped(broker: Broker, brokers: LocalServiceManager, holding: Holding):
    holding.connection.answer(holding.command, lambda: coroutine(response(body=b"1")))
    brokers.drop(holding.channel, holding.command)

    assert (await holding.answer).body == b"1"
    assert broker.dropped == []


# -- clients


async def test_a_client_is_one_connection(broker: Broker, brokers: LocalServiceManager):
    channel = Channel()
    for _ in range(2):
        brokers.invoke(channel, "", request(CODE))

    [first, second] = [connection for connection, _ in broker.asked]
    assert first is second
    assert (first.remote_address, first.audience) == ("10.0.0.1:5000", Audience.CLIENT)
    assert first.send_oneway(request(CODE))
    with pytest.raises(RemotingSendError):
        await first.invoke(request(CODE), 1.0)


@pytest.mark.parametrize(
    ("address", "host", "is_local"),
    [
        ("10.0.0.1:5000", host_bytes("10.0.0.1", 5000), False),
        ("[::ffff:10.0.0.1]:5000", host_bytes("10.0.0.1", 5000), False),
        ("127.0.0.1:5000", host_bytes("127.0.0.1", 5000), True),
        ("[::1]:5000", host_bytes("::1", 5000), True),
    ],
)
async def test_a_client_has_a_share_by_its_address(
    broker: Broker, brokers: LocalServiceManager, address: str, host: bytes, is_local: bool
):
    brokers.invoke(Channel(address), "", request(CODE))

    [(connection, _)] = broker.asked
    assert isinstance(connection, LocalConnection)
    assert connection.remote_host == host
    assert (connection.share is None) == is_local


async def test_a_client_that_is_gone_is_forgotten(broker: Broker, brokers: LocalServiceManager, holding: Holding):
    brokers.closed(holding.channel)
    brokers.closed(holding.channel)

    assert (await holding.answer).remark == "the connection is closed: the client is gone"
    assert broker.closed == [holding.connection]
    assert not holding.connection.send_oneway(request(CODE))
    brokers.invoke(holding.channel, "", request(CODE))
    assert broker.asked[-1][0] is not holding.connection, "it came back"


async def test_a_stop_forgets_all_clients(broker: Broker):
    brokers = LocalServiceManager(broker)
    async with running(brokers):
        holding = Holding(broker, brokers)
        unfinished = Holding(broker, brokers)
        unfinished.connection.answer(unfinished.command, lambda: InTurn(asyncio.Event().wait()))  # type: ignore[arg-type]
        await turns(2)
    assert (await holding.answer).code == ResponseCode.SYSTEM_ERROR
    assert len(broker.closed) == 2
    assert len(brokers._tasks) == 0
    unfinished.answer.cancel()
