"""Receives, acknowledgements, delays and dead letters at a broker's processors, and what brokers may answer."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="the extra grpc is not installed")

from google.protobuf.duration_pb2 import Duration

from rocketbroker.codec.remoting.bodies.pop import BatchAckMessageRequestBody
from rocketbroker.codec.remoting.headers.pop import PopMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import BrokerResponseError, RemotingTimeoutError
from rocketbroker.proxy import clients as clients_module
from rocketbroker.proxy.call_context import CallContext
from rocketbroker.proxy.cluster_service_manager import ClusterServiceManager
from rocketbroker.proxy.local_service_manager import LocalConnection, LocalServiceManager
from rocketbroker.proxy.messaging_pb2 import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    ChangeInvisibleDurationRequest,
    Code,
    FilterExpression,
    FilterType,
    ForwardMessageToDeadLetterQueueRequest,
    Message,
    MessageQueue,
    MessageType,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Resource,
    SendMessageRequest,
    Settings,
    Status,
    TelemetryCommand,
)
from rocketbroker.proxy.messaging_service import MessagingService
from rocketbroker.proxy.receipts import decode_handle
from rocketbroker.testing.clocks import ControlledClock
from tests.support.local_broker import ControlledBroker, served_broker
from tests.support.proxy_brokers import ENDPOINTS, FakeBrokers
from tests.support.proxy_calls import CONTEXT, Stream, consumer, message, refusal
from tests.support.stores import read_queue
from tests.support.waiting import turns, until

ORDERS, BILLING = Resource(name="Orders"), Resource(name="billing")


class Served:
    """A broker and its gRPC front, with the calls of a consumer."""

    def __init__(self, broker: ControlledBroker, service: MessagingService, clock: ControlledClock) -> None:
        self.broker = broker
        self.service = service
        self.clock = clock

    async def send(self, *bodies: bytes, **system: Any) -> None:
        for body in bodies:
            await self.service.send_message(SendMessageRequest(messages=[message(body, **system)]), CONTEXT)
            # Messages are readable in the next turn of the event loop, before an answer could have left.
            await turns(1)

    async def receive(self, **fields: Any) -> list[Message]:
        """Return the messages of a receive that does not wait longer than needed."""
        return [each.message for each in await parts(self.service, receive(**fields)) if each.HasField("message")]

    async def received(self, **fields: Any) -> list[Message]:
        """Receive until there are messages; the clock stands still."""
        async with asyncio.timeout(60):
            while not (found := await self.receive(**fields)):
                pass
        return found

    def connection(self) -> LocalConnection:
        """Return the client as the broker knows it."""
        brokers = self.service._consuming._brokers
        assert isinstance(brokers, LocalServiceManager)
        [connection] = brokers._connections.values()
        return connection

    async def ack(self, *messages: Message, topic: Resource = ORDERS) -> AckMessageResponse:
        handles = [each.system_properties.receipt_handle for each in messages]
        return await self.service.ack_message(ack(*handles, topic=topic), CONTEXT)

    def held_pops(self) -> int:
        return self.broker.controller.polling.polling_num("Orders", "billing", -1)

    def dead_letters(self) -> list[bytes]:
        return [each.body for each in read_queue(self.broker.controller.store, "%DLQ%billing", 0)]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    clock = ControlledClock()
    async with served_broker(tmp_path, clock) as (broker, service):
        broker.add_topic("Orders", queues=1)
        broker.add_topic("Other", queues=1)
        broker.add_group("billing", retry_max_times=1)
        yield Served(broker, service, clock)


@pytest.fixture
def brokers() -> FakeBrokers:
    brokers = FakeBrokers(answer=response(ResponseCode.POLLING_TIMEOUT))
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    return brokers


@pytest.fixture
def service(brokers: FakeBrokers) -> MessagingService:
    return MessagingService(brokers, ENDPOINTS)


def receive(topic: Resource = ORDERS, **fields: Any) -> ReceiveMessageRequest:
    values: dict[str, Any] = {"batch_size": 32, "invisible_duration": Duration(seconds=30), **fields}
    return ReceiveMessageRequest(group=BILLING, message_queue=MessageQueue(topic=topic), **values)


async def parts(
    service: MessagingService, request: ReceiveMessageRequest, context: CallContext = CONTEXT
) -> list[ReceiveMessageResponse]:
    return await service.receive_message(request, context)


async def status(service: MessagingService, request: ReceiveMessageRequest, context: CallContext = CONTEXT) -> Status:
    found = await parts(service, request, context)
    assert [each.WhichOneof("content") for each in found] == ["status", "delivery_timestamp"]
    return found[0].status


def ack(*handles: str, topic: Resource = ORDERS) -> AckMessageRequest:
    entries = [AckMessageEntry(message_id=str(index), receipt_handle=each) for index, each in enumerate(handles)]
    return AckMessageRequest(group=BILLING, topic=topic, entries=entries)


def bodies(messages: list[Message]) -> list[bytes]:
    return [each.body for each in messages]


def handle(**changes: Any) -> str:
    """Return a handle of offset 0 that is valid for a day, with changes."""
    info = decode_handle("0 1 1 0 0 broker-a 0 0").info
    pop_time = ControlledClock().time_ms()
    return info._replace(**{"pop_time": pop_time, "invisible_time": 86_400_000, **changes}).encode()


# -- receives


async def test_a_receive_is_a_status_messages_and_a_time(served: Served):
    await served.send(b"1", b"2")
    found = await parts(served.service, receive())

    assert [each.WhichOneof("content") for each in found] == ["status", "message", "message", "delivery_timestamp"]
    assert found[0].status.code == Code.OK
    first = found[1].message
    assert (first.topic, first.body, first.system_properties.delivery_attempt) == (ORDERS, b"1", 1)
    known = decode_handle(first.system_properties.receipt_handle)
    assert (known.info.broker_name, known.info.queue_offset, known.info.invisible_time) == ("broker-a", 0, 30_000)
    assert known.commit_log_offset >= 0


async def test_a_namespace_changes_no_name(served: Served):
    await served.send(b"1")
    orders = Resource(resource_namespace="tenant", name="Orders")
    [found] = await served.receive(topic=orders)

    assert found.topic == ORDERS, "as Apache's proxy answers"
    assert (await served.ack(found, topic=orders)).status.code == Code.OK
    assert served.broker.controller._check_points.count == 0


async def test_a_receive_waits_for_a_message(served: Served):
    waiting = asyncio.create_task(served.receive())
    await until(served.held_pops)
    await served.send(b"new")

    assert bodies(await waiting) == [b"new"]


async def test_an_acknowledged_message_does_not_return_and_another_one_does(served: Served):
    await served.send(b"1", b"2")
    first, second = await served.receive()
    assert (await served.ack(first)).status.code == Code.OK
    served.clock.advance(31)
    async with asyncio.timeout(60):
        while not (again := await served.receive(long_polling_timeout=Duration(seconds=5))):
            pass

    assert bodies(again) == [b"2"]
    system = again[0].system_properties
    assert (system.message_id, system.delivery_attempt) == (second.system_properties.message_id, 2)
    assert again[0].topic == ORDERS
    assert (await served.ack(*again)).status.code == Code.OK


async def test_other_tags_with_the_same_hash_are_acknowledged_unseen(served: Served):
    # "Aa" and "BB" have one hash.
    await served.send(b"1", tag="BB")
    await served.send(b"2", tag="Aa")
    wanted = FilterExpression(type=FilterType.TAG, expression="Aa || x")

    assert bodies(await served.receive(filter_expression=wanted)) == [b"2"]
    assert served.broker.controller._check_points.count == 1


async def test_only_other_tags_are_no_match(served: Served):
    await served.send(b"1", tag="BB")
    found = await status(served.service, receive(filter_expression=FilterExpression(expression="Aa")))

    assert (found.code, found.message) == (Code.MESSAGE_NOT_FOUND, "no match message")


async def test_a_message_whose_attempts_are_used_up_is_a_dead_letter(served: Served):
    await served.send(b"bad")
    for attempt in (1, 2):
        async with asyncio.timeout(60):
            while not (found := await served.receive()):
                pass
        assert found[0].system_properties.delivery_attempt == attempt
        served.clock.advance(31)
    async with asyncio.timeout(60):
        while not served.dead_letters():
            assert await served.receive() == []

    assert served.dead_letters() == [b"bad"]


async def test_an_ordered_group_gets_the_next_message_after_the_first(served: Served):
    served.broker.add_group("billing", is_fifo=True)
    await served.send(b"1", b"2")
    first = await served.receive(batch_size=1)
    assert bodies(first) == [b"1"]
    assert decode_handle(first[0].system_properties.receipt_handle).info.is_order
    waiting = asyncio.create_task(served.receive(batch_size=1))
    await until(served.held_pops)
    await served.ack(*first)

    assert bodies(await waiting) == [b"2"]


async def test_an_ordered_message_counts_its_attempts(served: Served):
    served.broker.add_group("billing", is_fifo=True, retry_max_times=3)
    await served.send(b"1")
    attempts = []
    for _ in range(2):
        async with asyncio.timeout(60):
            while not (found := await served.receive()):
                pass
        attempts.append(found[0].system_properties.delivery_attempt)
        served.clock.advance(31)

    assert attempts == [1, 2]


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (receive(topic=Resource(name="no blank")), Code.ILLEGAL_TOPIC, "illegal characters"),
        (receive(topic=Resource(name="Unknown")), Code.TOPIC_NOT_FOUND, "Unknown"),
        (receive(invisible_duration=Duration(seconds=0)), Code.ILLEGAL_INVISIBLE_TIME, "too small. min is 10000"),
        (receive(invisible_duration=Duration(seconds=9)), Code.ILLEGAL_INVISIBLE_TIME, "9000 ms"),
        (receive(invisible_duration=Duration(seconds=-1)), Code.ILLEGAL_INVISIBLE_TIME, "too small"),
        (receive(invisible_duration=Duration(seconds=31_536_000)), Code.ILLEGAL_INVISIBLE_TIME, "too large"),
        (receive(batch_size=0), Code.BAD_REQUEST, "batch_size is 0"),
        (receive(batch_size=-1), Code.BAD_REQUEST, "batch_size is -1"),
        (receive(filter_expression=FilterExpression(expression="||")), Code.ILLEGAL_FILTER_EXPRESSION, "no tag"),
        (receive(filter_expression=FilterExpression(type=FilterType.SQL)), Code.ILLEGAL_FILTER_EXPRESSION, "SQL92"),
    ],
)
async def test_a_wrong_receive_is_answered_with_the_reason(
    served: Served, asked: ReceiveMessageRequest, code: Code, text: str
):
    found = await status(served.service, asked)

    assert found.code == code
    assert text in found.message


async def test_a_wrong_sql_expression_is_illegal(tmp_path: Path):
    async with served_broker(tmp_path, enablePropertyFilter="true") as (broker, service):
        broker.add_topic("Orders")
        broker.add_group("billing")
        wrong = FilterExpression(type=FilterType.SQL, expression="n >")
        found = await status(service, receive(filter_expression=wrong))

    assert found.code == Code.ILLEGAL_FILTER_EXPRESSION


def polled(brokers: FakeBrokers) -> PopMessageRequestHeader:
    [command] = brokers.sent(RequestCode.POP_MESSAGE)
    assert isinstance(command.header, PopMessageRequestHeader)
    return command.header


@pytest.mark.parametrize(
    ("seconds", "poll_ms"), [(-3, 5000), (0, 5000), (7, 7000), (20, 20_000), (100, 20_000), (None, 20_000)]
)
async def test_a_poll_takes_5_to_20_seconds(
    service: MessagingService, brokers: FakeBrokers, seconds: int | None, poll_ms: int
):
    asked = receive() if seconds is None else receive(long_polling_timeout=Duration(seconds=seconds))
    found = await status(service, asked)

    assert (found.code, found.message) == (Code.MESSAGE_NOT_FOUND, "no new message")
    assert polled(brokers).poll_time == poll_ms


def until_deadline(seconds: float) -> CallContext:
    deadline = asyncio.get_running_loop().time() + seconds
    return CallContext("client-1", "JAVA", "5.1.0", "", "127.0.0.1:5000", deadline)


async def test_a_poll_ends_before_the_deadline(service: MessagingService, brokers: FakeBrokers):
    await status(service, receive(long_polling_timeout=Duration(seconds=20)), until_deadline(10))

    assert 9000 < polled(brokers).poll_time <= 9_900, "longPollingReserveTimeInMillis is left"


async def test_the_time_left_for_an_answer_is_a_setting(brokers: FakeBrokers):
    config = ProxyConfig(
        grpc_client_consumer_min_long_polling_timeout_millis=1000, long_polling_reserve_time_in_millis=10_000
    )
    service = MessagingService(brokers, ENDPOINTS, config=config)
    for left_s in (15, 9):
        await status(service, receive(long_polling_timeout=Duration(seconds=20)), until_deadline(left_s))
    first, second = [each.header for each in brokers.sent(RequestCode.POP_MESSAGE)]

    assert 4000 < first.poll_time <= 5000
    assert second.poll_time == 0


async def test_a_poll_leaves_time_for_the_answer(service: MessagingService, brokers: FakeBrokers):
    settings = Settings()
    settings.CopyFrom(consumer("billing").settings)
    settings.request_timeout.seconds = 6
    brokers.answers[RequestCode.HEART_BEAT] = response()
    await service.telemetry(TelemetryCommand(settings=settings), CONTEXT, Stream())
    await status(service, receive(), until_deadline(12))

    assert 8000 < polled(brokers).poll_time <= 9000


async def test_a_deadline_that_is_near_is_refused(service: MessagingService, brokers: FakeBrokers):
    found = await status(service, receive(), until_deadline(4))

    assert found.code == Code.ILLEGAL_POLLING_TIME
    assert brokers.sent(RequestCode.POP_MESSAGE) == []


async def test_a_receive_asks_for_32_messages_of_all_queues_at_most(service: MessagingService, brokers: FakeBrokers):
    asked = receive(batch_size=1000, attempt_id="attempt", auto_renew=True)
    asked.ClearField("invisible_duration")
    asked.message_queue.id = 3
    await status(service, asked)

    header = polled(brokers)
    assert (header.max_msg_nums, header.queue_id, header.init_mode) == (32, -1, 1)
    assert (header.invisible_time, header.attempt_id, header.order) == (60_000, "attempt", False)


async def test_limits_of_times_are_settings(brokers: FakeBrokers):
    config = ProxyConfig(
        grpc_client_consumer_min_long_polling_timeout_millis=100,
        grpc_client_consumer_max_long_polling_timeout_millis=300,
        min_invisible_time_mills_for_recv=2000,
        max_invisible_time_mills=3000,
        default_invisible_time_mills=2500,
    )
    service = MessagingService(brokers, ENDPOINTS, config=config)
    for polled_s, invisible_s, auto_renew in ((0, 2, False), (60, 3, False), (60, 9, True)):
        poll, invisible = Duration(seconds=polled_s), Duration(seconds=invisible_s)
        asked = receive(auto_renew=auto_renew, long_polling_timeout=poll, invisible_duration=invisible)
        await status(service, asked)
    headers = [each.header for each in brokers.sent(RequestCode.POP_MESSAGE)]
    refused = [await status(service, receive(invisible_duration=Duration(seconds=each))) for each in (1, 4)]

    assert [(each.poll_time, each.invisible_time) for each in headers] == [(100, 2000), (300, 3000), (300, 2500)]
    assert [each.code for each in refused] == [Code.ILLEGAL_INVISIBLE_TIME] * 2


async def test_without_renewal_a_consumer_gives_an_invisible_time(brokers: FakeBrokers):
    service = MessagingService(brokers, ENDPOINTS, config=ProxyConfig(enable_proxy_auto_renew=False))
    refused = await status(service, receive(auto_renew=True, invisible_duration=Duration()))
    await status(service, receive(auto_renew=True))

    assert refused.code == Code.ILLEGAL_INVISIBLE_TIME
    assert polled(brokers).invisible_time == 30_000


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ResponseCode.POLLING_FULL, Code.TOO_MANY_REQUESTS),
        (ResponseCode.PULL_NOT_FOUND, Code.MESSAGE_NOT_FOUND),
        (ResponseCode.SYSTEM_ERROR, Code.INTERNAL_SERVER_ERROR),
    ],
)
async def test_a_receive_without_messages_says_why(
    service: MessagingService, brokers: FakeBrokers, answer: ResponseCode, code: Code
):
    brokers.answer = response(answer, "why")

    assert (await status(service, receive())).code == code


async def test_messages_that_a_client_does_not_take_return_soon(served: Served):
    await served.send(b"1", b"2", b"3")
    request = receive(auto_renew=True)
    replies = await served.service.receive_message(request, CONTEXT)
    # The first was given, and nobody knows if it arrived.
    served.service.not_taken(request, replies[2:], CONTEXT)
    await until(lambda: not served.service._receipts._returning)
    renewed = served.service._receipts._renewed[served.service._clients.of(CONTEXT)]
    assert [place.queue_offset for place in renewed] == [0]
    served.clock.advance(1.5)
    async with asyncio.timeout(60):
        again: list[bytes] = []
        while len(again) < 2:
            again += bodies(await served.receive())

    assert sorted(again) == [b"2", b"3"]


async def test_messages_return_of_a_client_that_is_not_kept(served: Served, monkeypatch: pytest.MonkeyPatch):
    await served.send(b"1")
    request = receive()
    replies = await served.service.receive_message(request, CONTEXT)
    served.service._clients.forget_all()
    monkeypatch.setattr(clients_module, "_MOST_CLIENTS", 0)
    served.service.not_taken(request, replies[1:], CONTEXT)
    await until(lambda: not served.service._receipts._returning)
    brokers = served.service._consuming._brokers
    assert isinstance(brokers, LocalServiceManager)
    assert brokers._connections == {}, "it is closed again"
    monkeypatch.setattr(clients_module, "_MOST_CLIENTS", 1)

    assert bodies(await served.received()) == [b"1"]


async def cancelled_receive(
    service: MessagingService, brokers: FakeBrokers, context: CallContext
) -> asyncio.Future[Command]:
    """Cancel a receive and return the answer that its pop waits for."""
    brokers.held = pop = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(parts(service, receive(), context))
    await until(lambda: brokers.held is None)
    await turns(1)
    waiting.cancel()
    await asyncio.wait([waiting])
    return pop


async def test_cancelled_receives_of_one_connection_keep_others_out_of_nothing(brokers: FakeBrokers):
    service = MessagingService(brokers, ENDPOINTS, config=ProxyConfig(grpc_max_open_calls=128))
    pops = [await cancelled_receive(service, brokers, CONTEXT) for _ in range(2)]
    refused = await status(service, receive())
    other = await status(service, receive(), replace(CONTEXT, peer="10.0.0.9:1"))
    pops[0].set_result(response(ResponseCode.POLLING_TIMEOUT))
    await turns(3)
    later = await status(service, receive())
    pops[1].set_result(response(ResponseCode.POLLING_TIMEOUT))
    await turns(3)

    assert refused.code == Code.TOO_MANY_REQUESTS
    assert refused.message.startswith("2 receives that were cancelled on this connection wait at the brokers")
    assert (other.code, later.code) == (Code.MESSAGE_NOT_FOUND, Code.MESSAGE_NOT_FOUND)
    assert not service._consuming._abandoned, "nothing is kept of a connection"


async def test_pops_of_cancelled_receives_count_until_their_broker_answers(brokers: FakeBrokers):
    service = MessagingService(brokers, ENDPOINTS, config=ProxyConfig(grpc_max_open_calls=2))
    peers = [replace(CONTEXT, peer=f"10.0.0.{n}:1") for n in range(2)]
    pops = [await cancelled_receive(service, brokers, each) for each in peers]
    refused = await status(service, receive())
    for pop in pops:
        pop.set_result(response(ResponseCode.POLLING_TIMEOUT))
    await turns(3)

    assert len(brokers.dropped) == 2
    assert refused.code == Code.TOO_MANY_REQUESTS
    assert refused.message.startswith("2 receives wait at the brokers, the limit (grpcMaxOpenCalls) is 2")
    assert (await status(service, receive())).code == Code.MESSAGE_NOT_FOUND


async def test_a_receive_that_is_cancelled_holds_nothing(served: Served):
    waiting = asyncio.create_task(served.receive())
    await until(served.held_pops)
    waiting.cancel()
    await asyncio.wait([waiting])

    assert served.held_pops() == 0


async def test_messages_that_come_as_a_receive_is_cancelled_return_at_once(served: Served):
    waiting = asyncio.create_task(served.receive())
    await until(served.held_pops)
    connection = served.connection()
    [held] = connection.held.values()
    held.add_done_callback(lambda _: waiting.cancel())
    await served.send(b"1")
    await asyncio.wait([waiting])

    assert waiting.cancelled()
    assert connection.held == {}
    assert bodies(await served.received()) == [b"1"]


@pytest.mark.parametrize("is_fifo", [False, True])
async def test_a_broker_that_cannot_drop_a_pop_gets_its_messages_back(
    served: Served, monkeypatch: pytest.MonkeyPatch, is_fifo: bool
):
    served.broker.add_group("billing", is_fifo=is_fifo)
    monkeypatch.setattr(LocalServiceManager, "drop", ClusterServiceManager.drop)
    waiting = asyncio.create_task(served.receive(auto_renew=True))
    await until(served.held_pops)
    waiting.cancel()
    await asyncio.wait([waiting])
    await served.send(b"1")
    await until(lambda: not served.service._consuming._tasks._tasks)

    assert bodies(await served.received()) == [b"1"]


async def test_a_receive_that_is_cancelled_while_it_filters_gives_its_messages_back(
    served: Served, monkeypatch: pytest.MonkeyPatch
):
    acknowledging = asyncio.Event()

    async def acknowledge(*_: object) -> None:
        acknowledging.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(served.service._consuming, "_ack", acknowledge)
    await served.send(b"1", tag="BB")
    await served.send(b"2", tag="Aa")
    wanted = FilterExpression(expression="Aa")
    waiting = asyncio.create_task(served.receive(filter_expression=wanted))
    await acknowledging.wait()
    waiting.cancel()
    await asyncio.wait([waiting])

    assert bodies(await served.received(filter_expression=wanted)) == [b"2"]


async def test_a_broker_that_is_gone_is_the_answer_of_a_receive(service: MessagingService, brokers: FakeBrokers):
    brokers.held = asyncio.get_running_loop().create_future()
    brokers.held.set_exception(RemotingTimeoutError("no answer"))

    assert (await status(service, receive())).code == Code.PROXY_TIMEOUT


# -- acknowledgements


async def test_several_messages_are_acknowledged_by_one_request(served: Served):
    await served.send(b"1", b"2", b"3")
    found = await served.receive()
    reply = await served.ack(*found)

    assert reply.status.code == Code.OK
    assert [each.status.code for each in reply.entries] == [Code.OK] * 3
    assert [each.receipt_handle for each in reply.entries] == [each.system_properties.receipt_handle for each in found]
    assert served.broker.controller._check_points.count == 0


async def test_a_message_is_acknowledged_twice(served: Served):
    await served.send(b"1")
    found = await served.receive()

    assert [(await served.ack(*found)).status.code for _ in range(2)] == [Code.OK, Code.OK]


async def test_a_batch_names_the_check_points(service: MessagingService, brokers: FakeBrokers):
    brokers.answer = response()
    brokers.broker_names = ["broker-a", "broker-b"]
    pop_time = ControlledClock().time_ms()

    def at(offset: int, broker_name: str = "broker-a", start: int = 0) -> str:
        return handle(queue_offset=offset, ck_queue_offset=start, broker_name=broker_name, pop_time=pop_time)

    reply = await service.ack_message(ack(at(0), at(9), at(9, start=9), at(1, "broker-b")), CONTEXT)

    assert reply.status.code == Code.OK
    [batch] = brokers.sent(RequestCode.BATCH_ACK_MESSAGE)
    acks = BatchAckMessageRequestBody.decode(batch.body).acks
    assert [(each.start_offset, list(each.offsets())) for each in acks] == [(0, [0, 9]), (9, [9])]
    assert len(brokers.sent(RequestCode.ACK_MESSAGE)) == 1


async def test_results_of_entries_differ(served: Served):
    await served.send(b"1")
    [found] = await served.receive()
    good = found.system_properties.receipt_handle
    reply = await served.service.ack_message(ack(good, "nonsense", handle(pop_time=1)), CONTEXT)

    assert reply.status.code == Code.MULTIPLE_RESULTS
    assert [each.status.code for each in reply.entries] == [
        Code.OK,
        Code.INVALID_RECEIPT_HANDLE,
        Code.INVALID_RECEIPT_HANDLE,
    ]
    assert [each.message_id for each in reply.entries] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("wrong", "code", "text"),
    [
        ("", Code.INVALID_RECEIPT_HANDLE, "receipt handle is invalid"),
        ("nonsense", Code.INVALID_RECEIPT_HANDLE, "expected 8 to 10 fields"),
        ("0 x 1 0 0 broker-a 0 0", Code.INVALID_RECEIPT_HANDLE, "not a number"),
        (handle() + " x", Code.INVALID_RECEIPT_HANDLE, "CommitLog offset"),
        (handle(retry="7"), Code.INVALID_RECEIPT_HANDLE, "expected 0, 1 or 2"),
        (handle(pop_time=1), Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired"),
        (handle(queue_offset=2**62), Code.INVALID_RECEIPT_HANDLE, "not of a pop from 0 on"),
        (handle(broker_name="broker-z"), Code.INTERNAL_SERVER_ERROR, "broker-z"),
        (handle(queue_id=99), Code.INTERNAL_SERVER_ERROR, "queueId[99] is illegal"),
        (handle(queue_offset=50), Code.INTERNAL_SERVER_ERROR, "offset is illegal"),
        (handle(retry="1"), Code.TOPIC_NOT_FOUND, "%RETRY%billing_Orders"),
    ],
    ids=range(11),  # handles have the time
)
async def test_a_wrong_handle_is_refused(served: Served, wrong: str, code: Code, text: str):
    reply = await served.service.ack_message(ack(wrong), CONTEXT)

    assert (reply.status.code, reply.entries[0].status.code) == (code, code)
    assert text in reply.entries[0].status.message


async def test_a_handle_of_another_topic_acknowledges_nothing(served: Served):
    await served.send(b"1")
    found = await served.receive()
    reply = await served.ack(*found, topic=Resource(name="Other"))

    assert reply.entries[0].status.code == Code.OK, "as Apache's proxy answers"
    assert served.broker.controller._check_points.count == 1


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ack(), Code.INTERNAL_SERVER_ERROR),
        (ack("x", topic=Resource(name="no blank")), Code.ILLEGAL_TOPIC),
        (ack(*["x"] * 4097), Code.BAD_REQUEST),
        (AckMessageRequest(topic=ORDERS, group=Resource(name="CID_RMQ_SYS_x")), Code.ILLEGAL_CONSUMER_GROUP),
    ],
)
async def test_a_wrong_acknowledgement_is_refused(served: Served, request_: AckMessageRequest, code: Code):
    assert (await refusal(served.service.ack_message(request_, CONTEXT))).code == code


# -- delays


def change(handle: str, seconds: float, topic: Resource = ORDERS) -> ChangeInvisibleDurationRequest:
    ms = round(seconds * 1000)
    duration = Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
    return ChangeInvisibleDurationRequest(
        group=BILLING, topic=topic, receipt_handle=handle, invisible_duration=duration
    )


async def test_a_message_returns_at_another_time(served: Served):
    await served.send(b"1")
    [found] = await served.receive(invisible_duration=Duration(seconds=3600))
    reply = await served.service.change_invisible_duration(change(found.system_properties.receipt_handle, 0), CONTEXT)
    async with asyncio.timeout(60):
        while not (again := await served.receive()):
            pass

    assert reply.status.code == Code.OK
    assert decode_handle(reply.receipt_handle).info.invisible_time == 0
    assert again[0].system_properties.delivery_attempt == 2


async def test_the_new_handle_acknowledges_the_message(served: Served):
    await served.send(b"1", b"2")
    _, second = await served.receive()
    reply = await served.service.change_invisible_duration(change(second.system_properties.receipt_handle, 60), CONTEXT)
    before = decode_handle(second.system_properties.receipt_handle)
    after = decode_handle(reply.receipt_handle)
    answer = await served.service.ack_message(ack(reply.receipt_handle), CONTEXT)

    assert after.commit_log_offset == before.commit_log_offset
    assert (after.info.ck_queue_offset, after.info.queue_offset) == (1, 1)
    assert answer.status.code == Code.OK
    # The first message is left.
    assert served.broker.controller._check_points.count == 1


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (change(handle(), 31_536_000), Code.ILLEGAL_INVISIBLE_TIME, "too large. max is 43200000"),
        (change(handle(), -1), Code.ILLEGAL_INVISIBLE_TIME, "too small. min is 0"),
        (change("nonsense", 10), Code.INVALID_RECEIPT_HANDLE, "receipt handle is invalid"),
        (change(handle(pop_time=1), 10), Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired"),
        (change(handle(), 10, Resource(name="no blank")), Code.ILLEGAL_TOPIC, "illegal characters"),
    ],
)
async def test_a_wrong_change_is_refused(
    served: Served, request_: ChangeInvisibleDurationRequest, code: Code, text: str
):
    error = await refusal(served.service.change_invisible_duration(request_, CONTEXT))

    assert error.code == code
    assert text in error.message


# -- dead letters


def forward(handle: str) -> ForwardMessageToDeadLetterQueueRequest:
    return ForwardMessageToDeadLetterQueueRequest(group=BILLING, topic=ORDERS, receipt_handle=handle, message_id="1")


async def test_a_message_is_forwarded_and_does_not_return(served: Served):
    await served.send(b"bad")
    [found] = await served.receive()
    reply = await served.service.forward_message_to_dead_letter_queue(
        forward(found.system_properties.receipt_handle), CONTEXT
    )
    await until(served.dead_letters)

    assert reply.status.code == Code.OK
    assert served.dead_letters() == [b"bad"]
    assert served.broker.controller._check_points.count == 0


async def test_a_user_forwards_no_message_but_that_of_the_handle(served: Served):
    """The offset in the log is the client's claim, and the rights are for the topic of the call."""
    await served.send(b"one")
    await served.send(b"other")
    one, other = [found.system_properties.receipt_handle for found in await served.received(batch_size=2)]
    context = replace(CONTEXT, user="joe")
    forged = f"{one.rpartition(' ')[0]} {other.rpartition(' ')[2]}"
    error = await refusal(served.service.forward_message_to_dead_letter_queue(forward(forged), context))
    assert error.code == Code.INVALID_RECEIPT_HANDLE
    assert "leads to another message" in error.message
    assert served.dead_letters() == []

    reply = await served.service.forward_message_to_dead_letter_queue(forward(one), context)
    await until(served.dead_letters)
    assert reply.status.code == Code.OK
    assert len(served.dead_letters()) == 1


async def test_a_handle_without_the_place_of_the_message_forwards_nothing(served: Served):
    error = await refusal(served.service.forward_message_to_dead_letter_queue(forward(handle()), CONTEXT))

    assert error.code == Code.INVALID_RECEIPT_HANDLE
    assert "commit log offset is empty" in error.message


async def test_a_place_without_a_message_forwards_nothing(served: Served):
    with pytest.raises(BrokerResponseError, match="look message by offset failed"):
        await served.service.forward_message_to_dead_letter_queue(forward(handle() + " 999999"), CONTEXT)


async def test_a_fifo_message_is_received_by_its_group(served: Served):
    served.broker.add_topic("Steps", "FIFO")
    steps = message(b"1", "Steps", message_group="g", message_type=MessageType.FIFO)
    await served.service.send_message(SendMessageRequest(messages=[steps]), CONTEXT)
    [found] = await served.receive(topic=Resource(name="Steps"))

    assert found.system_properties.message_group == "g"
    assert found.system_properties.message_type == MessageType.FIFO
