"""Pulling, against a scripted broker."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, suppress

import pytest

from rocketbroker.client.consumer.pull_consumer import PullConsumer, StartFrom
from rocketbroker.client.core.errors import BrokerNotFoundError, InvalidMessageError, TopicRouteError
from rocketbroker.client.core.pull_result import MessageSelector, PullStatus
from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.remoting.bodies.client import ConsumeType, HeartbeatData
from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from rocketbroker.codec.remoting.headers.message import PullMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from tests.support.scripted_server import Script, ScriptedServer, header_of, name_server, route_of
from tests.support.waiting import until

HOST = host_bytes("127.0.0.1", 10911)


def record(queue_id: int, offset: int, tag: str) -> bytes:
    properties = encode_properties({"TAGS": tag})
    body = b"%d-%d" % (queue_id, offset)
    return encode_record(queue_id, 0, offset, offset * 100, 0, 1, HOST, 2, HOST, 0, 0, body, b"T", properties)


class Broker(ScriptedServer):
    """Serves queues of topic T; a pull at the end waits for nothing."""

    def __init__(self, queues: dict[int, list[str]]) -> None:
        super().__init__(
            {
                RequestCode.PULL_MESSAGE: self.pull,
                RequestCode.QUERY_CONSUMER_OFFSET: self.query,
                RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
                RequestCode.GET_MAX_OFFSET: lambda fields, _body: response(
                    header={"offset": str(len(queues[int(fields["queueId"])]))}
                ),
                RequestCode.GET_MIN_OFFSET: lambda _fields, _body: response(header={"offset": "0"}),
            }
        )
        self.queues = queues
        self.committed: dict[int, int] = {}
        self.refusals: list[int] = []

    def pull(self, fields: dict[str, str], _body: bytes) -> Command:
        if self.refusals:
            return response(self.refusals.pop(0), "refused")
        queue_id, offset = int(fields["queueId"]), int(fields["queueOffset"])
        tags = self.queues[queue_id]
        end = min(len(tags), offset + int(fields["maxMsgNums"]))
        code, body = ResponseCode.SUCCESS, b"".join(record(queue_id, at, tags[at]) for at in range(offset, end))
        if offset > len(tags):
            code, end = ResponseCode.PULL_OFFSET_MOVED, len(tags)
        elif not body:
            code = ResponseCode.PULL_NOT_FOUND
        return response(code, None, header_of(PullMessageResponseHeader(0, end, 0, len(tags))), body)

    def query(self, fields: dict[str, str], _body: bytes) -> Command:
        offset = self.committed.get(int(fields["queueId"]))
        return response(ResponseCode.QUERY_NOT_FOUND, "none") if offset is None else response(header={"offset": offset})

    def update(self, fields: dict[str, str], _body: bytes) -> Command:
        self.committed[int(fields["queueId"])] = int(fields["commitOffset"])
        return response()


class Stage:
    """One broker with two queues of 100 messages, tags a and b in turn, and its name server."""

    def __init__(self, broker: Broker, address: str, routes: dict[str, TopicRouteData]) -> None:
        self.broker = broker
        self.routes = routes
        self.namesrv_addr = address
        self.queue = MessageQueue("T", "broker-a", 0)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(Broker({index: ["a", "b"] * 50 for index in range(2)}))
        routes = {"T": route_of({"broker-a": broker.address}, queues=2)}
        names = await stack.enter_async_context(name_server(routes))
        yield Stage(broker, names.address, routes)


async def test_a_pull_returns_messages_and_the_next_offset(stage: Stage):
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        assert await consumer.fetch_subscribe_queues("T") == (stage.queue, MessageQueue("T", "broker-a", 1))
        result = await consumer.pull(stage.queue, 5, 3)
    assert result.pull_status is PullStatus.FOUND
    assert [message.body for message in result.messages] == [b"0-5", b"0-6", b"0-7"]
    assert (result.next_begin_offset, result.min_offset, result.max_offset) == (8, 0, 100)
    fields = stage.broker.of(RequestCode.PULL_MESSAGE)[0].fields
    assert (fields["sysFlag"], fields["suspendTimeoutMillis"], fields["subscription"]) == ("4", "0", "*")


async def test_a_pull_that_may_wait_says_so(stage: Stage):
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        result = await consumer.pull(stage.queue, 100, suspend_timeout_s=1.5)
    fields = stage.broker.of(RequestCode.PULL_MESSAGE)[0].fields
    assert (fields["sysFlag"], fields["suspendTimeoutMillis"]) == ("6", "1500")
    assert (result.pull_status, result.messages, result.next_begin_offset) == (PullStatus.NO_NEW_MSG, [], 100)


async def test_an_offset_that_is_not_there_is_moved(stage: Stage):
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        result = await consumer.pull(stage.queue, 500)
    assert (result.pull_status, result.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 100)


async def test_tags_are_compared_again(stage: Stage):
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        result = await consumer.pull(stage.queue, 0, 6, expression="b || c")
    assert [message.body for message in result.messages] == [b"0-1", b"0-3", b"0-5"]


async def test_the_broker_knows_the_group_before_the_first_pull(stage: Stage):
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        await consumer.pull(stage.queue, 0, expression="a||b")
        await consumer.pull(stage.queue, 0, expression="a||b")
    codes = [asked.code for asked in stage.broker.asked]
    assert codes == [RequestCode.HEART_BEAT, 11, 11, RequestCode.UNREGISTER_CLIENT]
    (data,) = HeartbeatData.decode(stage.broker.asked[0].body).consumer_data_set
    assert (data.group_name, data.consume_type) == ("CG", ConsumeType.CONSUME_ACTIVELY)
    assert data.subscription_data_set[0].tags_set == ["a", "b"]
    assert data.subscription_data_set[0].code_set == [97, 98]
    assert stage.broker.asked[-1].fields["consumerGroup"] == "CG"


async def test_a_refused_pull_is_raised(stage: Stage):
    stage.broker.refusals = [ResponseCode.NO_PERMISSION]
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        with pytest.raises(BrokerResponseError, match="CODE: 16"):
            await consumer.pull(stage.queue, 0)
        with pytest.raises(TopicRouteError):
            await consumer.pull(MessageQueue("Unknown", "broker-a", 0), 0)
        with pytest.raises(BrokerNotFoundError, match="broker-x"):
            await consumer.pull(MessageQueue("T", "broker-x", 0), 0)


async def test_offsets_are_committed_and_asked_for(stage: Stage):
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        assert await consumer.committed_offset(stage.queue) is None
        await consumer.commit_offset(stage.queue, 42)
        assert await consumer.committed_offset(stage.queue) == 42
        assert (await consumer.min_offset(stage.queue), await consumer.max_offset(stage.queue)) == (0, 100)


async def read(consumer: PullConsumer, number: int, start_from: StartFrom = StartFrom.COMMITTED) -> list[bytes]:
    bodies: list[bytes] = []
    async with asyncio.timeout(60), aclosing(consumer.iterate("T", start_from=start_from)) as messages:
        async for message in messages:
            bodies.append(message.body)
            if len(bodies) == number:
                break
    return bodies


async def test_an_iteration_gives_all_in_order_within_a_queue(stage: Stage):
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        bodies = await read(consumer, 200)
    for queue_id in range(2):
        mine = [body for body in bodies if body.startswith(b"%d-" % queue_id)]
        assert mine == [b"%d-%d" % (queue_id, offset) for offset in range(100)]


async def test_an_iteration_continues_where_the_last_stopped(stage: Stage):
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        first = await read(consumer, 50)
        assert sum(stage.broker.committed.values()) == 50
        rest = await read(consumer, 150)
    assert len({*first, *rest}) == 200


@pytest.mark.parametrize("closed", [True, False])
async def test_a_loop_that_is_left_by_break_has_consumed_its_messages(stage: Stage, *, closed: bool):
    seen: set[bytes] = set()
    async with asyncio.timeout(60):
        for _ in range(2):
            async with PullConsumer("CG", stage.namesrv_addr) as consumer:
                for _ in range(2):
                    messages = consumer.iterate("T")
                    async with AsyncExitStack() as stack:
                        if closed:
                            await stack.enter_async_context(aclosing(messages))
                        async for message in messages:
                            seen.add(message.body)
                            break
                    del messages
                # The third is left open: its messages before the last were asked beyond.
                open_messages = consumer.iterate("T")
                seen.add((await anext(open_messages)).body)
                await anext(open_messages)
            assert sum(stage.broker.committed.values()) == len(seen)
            await open_messages.aclose()
            assert sum(stage.broker.committed.values()) == len(seen)


@pytest.mark.parametrize("closed", [True, False])
async def test_a_loop_that_is_left_by_an_exception_gives_its_last_message_again(stage: Stage, *, closed: bool):
    bodies: list[bytes] = []

    async def fail() -> None:
        async with PullConsumer("CG", stage.namesrv_addr) as consumer, AsyncExitStack() as stack:
            iterations = [consumer.iterate("T", queues=[stage.queue])]
            if closed:
                await stack.enter_async_context(aclosing(iterations[0]))
            async for message in iterations.pop():
                bodies.append(message.body)
                if len(bodies) == 2:
                    raise ValueError("not consumed")

    async with asyncio.timeout(60):
        with pytest.raises(ValueError, match="not consumed"):
            await fail()
        assert stage.broker.committed == {0: 1}


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("closed", [True, False])
async def test_an_exception_that_is_caught_gives_the_message_again(stage: Stage, *, closed: bool, kept: bool):
    seen: list[bytes] = []

    async def read_until_a_failure(consumer: PullConsumer, failing: Callable[[], Awaitable[None]]) -> None:
        async with AsyncExitStack() as stack:
            iterations = [consumer.iterate("T", queues=[stage.queue])]
            if closed:
                await stack.enter_async_context(aclosing(iterations[0]))
            with suppress(ValueError, TimeoutError):
                async with asyncio.timeout(None) as limit:
                    async for message in iterations[0] if kept else iterations.pop():
                        seen.append(message.body)
                        if len(seen) % 2 == 0:
                            limit.reschedule(asyncio.get_running_loop().time())
                            await failing()

    async def fail() -> None:
        raise ValueError("not consumed")

    async with asyncio.timeout(60):
        async with PullConsumer("CG", stage.namesrv_addr) as consumer:
            await read_until_a_failure(consumer, fail)
            await read_until_a_failure(consumer, lambda: asyncio.sleep(60))
        assert seen == [b"0-0", b"0-1", b"0-1", b"0-2"]
        assert stage.broker.committed == {0: 2}


async def test_a_close_that_is_cancelled_during_a_commit_unregisters_nevertheless(stage: Stage):
    consumer = PullConsumer("CG", stage.namesrv_addr)
    await consumer.start()
    messages = consumer.iterate("T")
    await anext(messages)
    (stream,) = consumer._streams
    committing, goes_on = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        committing.set()
        await goes_on.wait()

    stream.commit = hang  # type: ignore[method-assign]
    closing = asyncio.ensure_future(consumer.close())
    await committing.wait()
    assert consumer._closing is not None
    consumer._closing.cancel()  # as the end of the event loop does
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert stage.broker.of(RequestCode.UNREGISTER_CLIENT)
    goes_on.set()
    await messages.aclose()


async def test_an_iteration_from_the_end_waits_for_what_is_new(stage: Stage):
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        reading = asyncio.ensure_future(read(consumer, 1, StartFrom.LAST))
        await until(lambda: len(stage.broker.of(RequestCode.PULL_MESSAGE)) >= 2)
        stage.broker.queues[1].append("a")
        assert await reading == [b"1-100"]


async def test_an_iteration_outlives_a_refusal_that_passes(stage: Stage, caplog: pytest.LogCaptureFixture):
    stage.broker.refusals = [ResponseCode.SYSTEM_BUSY]
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        assert len(await read(consumer, 200)) == 200
    assert "CODE: 2" in caplog.text


async def test_an_iteration_ends_by_a_refusal_that_lasts(stage: Stage):
    stage.broker.refusals = [ResponseCode.NO_PERMISSION]
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        with pytest.raises(BrokerResponseError, match="CODE: 16"):
            await read(consumer, 201)


@pytest.mark.parametrize("start_from", StartFrom)
async def test_an_iteration_waits_for_its_topic_and_gives_all_of_it(
    stage: Stage, start_from: StartFrom, caplog: pytest.LogCaptureFixture
):
    hidden = stage.routes.pop("T")
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        reading = asyncio.ensure_future(read(consumer, 200, start_from))
        await until(lambda: "waiting until the topic exists" in caplog.text)
        stage.routes["T"] = hidden
        assert len(await reading) == 200


async def test_sql_reaches_the_broker_as_sql(stage: Stage):
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        await consumer.pull(stage.queue, 0, expression=MessageSelector.by_sql("a > 5"))
    (data,) = HeartbeatData.decode(stage.broker.asked[0].body).consumer_data_set
    (subscription,) = data.subscription_data_set
    assert (subscription.sub_string, subscription.expression_type, subscription.tags_set) == ("a > 5", "SQL92", [])
    fields = stage.broker.of(RequestCode.PULL_MESSAGE)[0].fields
    assert (fields["subscription"], fields["expressionType"]) == ("a > 5", "SQL92")


async def test_sql_given_as_tags_is_rejected_at_once(stage: Stage):
    async with PullConsumer("CG", stage.namesrv_addr) as consumer:
        with pytest.raises(InvalidMessageError, match=r"use MessageSelector.by_sql\('a > 5'\)"):
            consumer.iterate("T", expression="a > 5")
        with pytest.raises(InvalidMessageError, match="looks like SQL"):
            await consumer.pull(stage.queue, 0, expression="a is not null")


async def test_an_iteration_by_sql_raises_the_remark_of_a_broker_that_filters_by_tags_only():
    remark = "The broker does not support consumer to filter message by SQL92"
    refuse: Script = lambda _fields, _body: response(ResponseCode.SYSTEM_ERROR, remark)  # noqa: E731
    routes: dict[str, TopicRouteData] = {}
    async with (
        ScriptedServer({RequestCode.CHECK_CLIENT_CONFIG: refuse}) as broker,
        name_server(routes) as names,
        PullConsumer("CG", names.address) as consumer,
    ):
        routes["T"] = route_of({"broker-a": broker.address})
        with pytest.raises(BrokerResponseError, match=remark):
            await anext(consumer.iterate("T", expression=MessageSelector.by_sql("a > 5")))
