"""Time limits of sends and requests: one deadline for route, heartbeat, connect and tries."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import OptionError, RequestTimeoutError, SendFailedError
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from rocketbroker.codec.remoting.headers.message import SendMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RemotingTimeoutError, RocketBrokerError
from tests.support.scripted_server import ScriptedServer, header_of, name_server, route_of

SEND = RequestCode.SEND_MESSAGE_V2
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
# What a busy machine may add to a limit. The faults below cost 3 s and more.
LATE_S = 2.0


def store(fields: dict[str, str], _body: bytes) -> Command:
    return response(header=header_of(SendMessageResponseHeader("0" * 32, int(fields["e"]), 0)))


def silent(_fields: dict[str, str], _body: bytes) -> None:
    return None


@asynccontextmanager
async def frozen_name_server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer({ROUTE: silent}) as names:
        yield names


async def seconds_of(work: object) -> tuple[float, BaseException | None]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        await work  # type: ignore[misc]
    except RocketBrokerError as error:
        return loop.time() - began, error
    return loop.time() - began, None


async def test_sends_that_wait_for_one_route_end_each_at_its_own_limit():
    async with frozen_name_server() as names, Producer("PG", names.address) as producer:
        limits = [0.1 + 0.002 * number for number in range(100)]
        ends = await asyncio.gather(
            *(seconds_of(producer.send(Message("T", b"x"), timeout_s=limit_s)) for limit_s in limits)
        )
        assert len(names.of(ROUTE)) == 1
    assert all(isinstance(error, RemotingTimeoutError) for _, error in ends)
    assert re.search(r"no route of topic T within 0\.\d+ s", str(ends[0][1]))
    assert all(took < limit_s + LATE_S for limit_s, (took, _) in zip(limits, ends, strict=True))


async def test_the_other_requests_keep_their_limit_while_the_name_server_is_silent():
    async with frozen_name_server() as names, ClientInstance(names.address) as client:
        producer = Producer("PG", client=client, send_timeout_s=0.1)
        await producer.start()
        queue = MessageQueue("T", "broker-a", 0)
        for work in (
            producer.send_oneway(Message("T", b"x")),
            producer.request(Message("T", b"x"), timeout_s=0.1),
            client.invoke_at_broker(queue, Command(RequestCode.GET_MAX_OFFSET), 0.1),
        ):
            took, error = await seconds_of(work)
            assert isinstance(error, RemotingTimeoutError)
            assert took < 0.1 + LATE_S
        await producer.close()


async def test_the_template_of_a_new_topic_gets_the_time_that_is_left():
    def known(fields: dict[str, str], _body: bytes) -> Command | None:
        return response(17, "no route") if fields["topic"] == "New" else None

    async with ScriptedServer({ROUTE: known}) as names, Producer("PG", names.address) as producer:
        took, error = await seconds_of(producer.send(Message("New", b"x"), timeout_s=0.1))
    assert isinstance(error, RemotingTimeoutError)
    assert took < 0.1 + LATE_S


async def test_a_silent_heartbeat_does_not_lengthen_a_request():
    async with (
        ScriptedServer({RequestCode.HEART_BEAT: silent, RequestCode.GET_MAX_OFFSET: silent}) as broker,
        name_server({"T": route_of({"broker-a": broker.address})}) as names,
        ClientInstance(names.address) as client,
    ):
        client.heartbeats.register_producer("PG")
        request = client.invoke_at_broker(MessageQueue("T", "broker-a", 0), Command(RequestCode.GET_MAX_OFFSET), 0.1)
        took, error = await seconds_of(request)
    assert isinstance(error, RemotingTimeoutError)
    assert took < 0.1 + LATE_S


async def test_a_question_keeps_its_limit_over_the_greetings():
    async with (
        ScriptedServer({RequestCode.HEART_BEAT: silent, SEND: store}) as broker,
        name_server({"T": route_of({"broker-a": broker.address})}) as names,
        Producer("PG", names.address) as producer,
    ):
        took, error = await seconds_of(producer.request(Message("T", b"x"), timeout_s=0.1))
    assert isinstance(error, RequestTimeoutError | RemotingTimeoutError)
    assert took < 0.1 + LATE_S


class Cluster:
    """A silent broker and one that stores, both with topic T."""

    def __init__(self) -> None:
        self.mute, self.good = ScriptedServer({SEND: silent}), ScriptedServer({SEND: store})
        self.routes: dict[str, TopicRouteData] = {}
        self.freezes = False

    async def open(self, stack: AsyncExitStack) -> str:
        for server in (self.mute, self.good):
            await stack.enter_async_context(server)
        route = route_of({"broker-a": self.mute.address, "broker-b": self.good.address}, queues=1)

        def find(_fields: dict[str, str], _body: bytes) -> Command | None:
            return None if self.freezes else response(body=route.encode())

        return (await stack.enter_async_context(ScriptedServer({ROUTE: find}))).address


async def test_a_silent_broker_leaves_time_for_another_one():
    async with AsyncExitStack() as stack:
        cluster = Cluster()
        config = ClientConfig(await cluster.open(stack))
        producer = await stack.enter_async_context(Producer("PG", config))
        for _ in range(2):  # each broker has its turn
            result = await producer.send(Message("T", b"x"), timeout_s=1.0)
            assert result.message_queue.broker_name == "broker-b"
        assert len(cluster.mute.of(SEND)) >= 1


async def test_a_silent_name_server_leaves_time_for_the_next_try():
    async with AsyncExitStack() as stack:
        cluster = Cluster()
        producer = await stack.enter_async_context(Producer("PG", await cluster.open(stack)))
        await producer.fetch_publish_queues("T")
        cluster.freezes = True
        for _ in range(2):
            took, error = await seconds_of(producer.send(Message("T", b"x"), timeout_s=2.0))
            assert error is None
            assert took < 2.0 + LATE_S


async def test_the_limit_of_a_try_can_be_set():
    async with AsyncExitStack() as stack:
        mute = await stack.enter_async_context(ScriptedServer({SEND: silent}))
        names = await stack.enter_async_context(name_server({"T": route_of({"mute": mute.address})}))
        options = {"send_max_timeout_per_request_s": 0.05, "retry_times_when_send_failed": 1}
        producer = await stack.enter_async_context(Producer("PG", names.address, **options))  # type: ignore[arg-type]
        took, error = await seconds_of(producer.send(Message("T", b"x")))
        assert isinstance(error, SendFailedError)
        assert [type(cause) for cause in error.causes] == [RemotingTimeoutError] * 2
        assert took < 0.2 + LATE_S


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_try_has_some_time(seconds: float):
    with pytest.raises(OptionError, match="send_max_timeout_per_request_s"):
        Producer("PG", "127.0.0.1:1", send_max_timeout_per_request_s=seconds)
