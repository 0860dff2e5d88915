"""Sends of a producer: settings, tries, time limits, hooks, batches and recalls."""

import asyncio
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType

import pytest

from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import (
    ClientStateError,
    InvalidMessageError,
    OptionError,
    SendFailedError,
    TopicRouteError,
)
from rocketbroker.client.core.message import Message, MessageType, SendMessageContext, SendStatus
from rocketbroker.client.core.topic_route_table import TopicRoute
from rocketbroker.client.producer.producer import Producer, ProducerOptions, ProducerSettings
from rocketbroker.client.producer.transaction_producer import LocalTransactionState, TransactionProducer
from rocketbroker.codec.message.message_batch import split_batch
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.message_properties import decode_properties
from rocketbroker.codec.remoting.bodies.client import HeartbeatData
from rocketbroker.codec.remoting.headers.message import SendMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, RemotingConnectError, RemotingError, RemotingTimeoutError
from tests.support.fakes import FakeClock
from tests.support.scripted_server import Script, ScriptedServer, header_of, name_server, route_of
from tests.support.waiting import until


def test_each_option_is_a_setting():
    assert ProducerOptions.__annotations__.keys() == set(ProducerSettings.__struct_fields__)


def test_an_unknown_option_is_refused():
    with pytest.raises(
        OptionError, match=r"TransactionProducer has no argument send_timeout; did you mean send_timeout_s\?"
    ):
        TransactionProducer(
            "PG",
            "127.0.0.1:1",
            check=lambda _message: LocalTransactionState.UNKNOWN,
            send_timeout=3,  # type: ignore[call-arg]
        )


SEND = RequestCode.SEND_MESSAGE_V2


class Broker(ScriptedServer):
    """Takes messages, or answers with the codes in ``refusals`` first."""

    def __init__(self, scripts: Mapping[int, Script] = MappingProxyType({})) -> None:
        codes = (SEND, RequestCode.SEND_BATCH_MESSAGE)
        super().__init__({**dict.fromkeys(codes, self.take), **scripts})
        self.refusals: list[int] = []
        self.stored = 0

    def take(self, fields: dict[str, str], _body: bytes) -> Command:
        code = self.refusals.pop(0) if self.refusals else ResponseCode.SUCCESS
        header = header_of(SendMessageResponseHeader(f"{self.stored:032X}", int(fields["e"]), self.stored))
        self.stored += 1
        return response(
            code, "refused" if code else None, {**header, "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        )


class Stage:
    """A name server and two brokers; topic T is on both, topic One on the first only."""

    def __init__(self) -> None:
        self.a, self.b = Broker(), Broker()
        self.names = name_server({})

    async def open(self, stack: AsyncExitStack) -> None:
        for server in (self.a, self.b, self.names):
            await stack.enter_async_context(server)
        both = {"broker-a": self.a.address, "broker-b": self.b.address}
        self.routes = {"T": route_of(both), "One": route_of({"broker-a": self.a.address}, queues=2)}
        self.names = await stack.enter_async_context(name_server(self.routes))

    def sent(self) -> list[tuple[str, dict[str, str], bytes]]:
        pairs = [("broker-a", self.a), ("broker-b", self.b)]
        return [(name, asked.fields, asked.body) for name, server in pairs for asked in server.of(SEND)]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        stage = Stage()
        await stage.open(stack)
        yield stage


async def test_a_message_arrives_with_its_fields(stage: Stage):
    async with Producer("PG", stage.names.address) as producer:
        message = Message("One", b"hello", tags="TagA", keys="k", properties={"color": "red"}, flag=7)
        result = await producer.send(message)
    ((_, fields, body),) = stage.sent()
    properties = decode_properties(fields["i"].encode())
    assert body == b"hello"
    assert (fields["a"], fields["b"], fields["c"], fields["d"], fields["h"]) == ("PG", "One", "TBW102", "4", "7")
    assert (fields["n"], fields["f"], fields["m"]) == ("broker-a", "0", "false")
    assert properties == {"color": "red", "KEYS": "k", "WAIT": "true", "TAGS": "TagA", "UNIQ_KEY": result.msg_id}
    assert result.send_status is SendStatus.SEND_OK
    assert result.message_queue == MessageQueue("One", "broker-a", int(fields["e"]))
    assert (result.queue_offset, result.offset_msg_id, result.region_id) == (0, "0" * 32, "DefaultRegion")
    assert stage.a.of(SEND)[0].language == "PYTHON"


async def test_queues_take_turns(stage: Stage):
    async with Producer("PG", stage.names.address) as producer:
        results = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(16)))
    queues = [result.message_queue for result in results]
    assert Counter(Counter(queues).values()) == {2: 8}

    assert len({result.msg_id for result in results}) == 16


async def test_a_given_queue_is_used(stage: Stage):
    queue = MessageQueue("T", "broker-b", 3)
    async with Producer("PG", stage.names.address) as producer:
        assert (await producer.send(Message("T", b"x"), queue)).message_queue == queue
        chosen = await producer.send(Message("T", b"x"), lambda queues, message: queues[len(message.body)])
    assert chosen.message_queue == MessageQueue("T", "broker-a", 1)


async def test_a_big_body_is_compressed(stage: Stage):
    body = b"abcd" * 2000
    async with Producer("PG", stage.names.address) as producer:
        await producer.send(Message("One", body))
        await producer.send(Message("One", body[:4095]))
    (_, first, packed), (_, second, plain) = stage.sent()
    assert (int(first["f"]), zlib.decompress(packed)) == (0x301, body)
    assert (int(second["f"]), plain) == (0, body[:4095])


async def test_a_refusal_that_passes_is_tried_on_another_broker(stage: Stage):
    stage.a.refusals = [ResponseCode.SYSTEM_BUSY] * 9
    async with Producer("PG", stage.names.address) as producer:
        results = [await producer.send(Message("T", b"x")) for _ in range(4)]
    assert {result.message_queue.broker_name for result in results} == {"broker-b"}
    assert len({result.msg_id for result in results}) == 4


async def test_a_dead_broker_is_skipped(stage: Stage):
    await stage.a.stop()
    async with Producer("PG", stage.names.address) as producer:
        results = [await producer.send(Message("T", b"x")) for _ in range(4)]
    assert {result.message_queue.broker_name for result in results} == {"broker-b"}


# Failures that say that the route is an old one; a broker that stops answers GO_AWAY.
STALE = ["dead", ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.GO_AWAY]


@pytest.mark.parametrize("fails", STALE)
async def test_a_topic_that_moved_is_sent_to_by_its_new_route(stage: Stage, fails: str | int):
    async with Producer("PG", stage.names.address) as producer:
        await producer.send(Message("One", b"x"))
        stage.routes["One"] = route_of({"broker-b": stage.b.address})
        if fails == "dead":
            await stage.a.stop()
        else:
            stage.a.refusals = [int(fails)] * 9
        result = await producer.send(Message("One", b"y"))
    assert result.message_queue.broker_name == "broker-b"


async def test_a_topic_that_moves_during_a_send_is_sent_to_by_the_lookup_that_is_planned(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    async with Producer("PG", stage.names.address) as producer:
        routes = producer._client.routes
        monkeypatch.setattr(routes, "_clock", FakeClock())
        monkeypatch.setattr(routes, "_lookup_interval_s", 0.05)
        await producer.send(Message("One", b"x"))
        await routes.refresh_after_failure("One", 1.0)
        stage.a.refusals = [ResponseCode.GO_AWAY] * 9
        stage.routes["One"] = route_of({"broker-b": stage.b.address})
        result = await producer.send(Message("One", b"y"))
    assert result.message_queue.broker_name == "broker-b"
    assert len(stage.a.of(SEND)) == 2


async def test_a_send_tries_the_other_broker_before_it_waits_for_a_lookup(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    stage.a.refusals = [ResponseCode.GO_AWAY] * 9
    async with Producer("PG", stage.names.address) as producer:
        routes = producer._client.routes
        monkeypatch.setattr(routes, "_lookup_interval_s", 600.0)
        async with asyncio.timeout(10):
            results = [await producer.send(Message("T", b"x"), timeout_s=60.0) for _ in range(4)]
    assert {result.message_queue.broker_name for result in results} == {"broker-b"}


async def test_a_send_that_is_denied_fails_without_a_wait_for_a_lookup(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    stage.a.refusals = [ResponseCode.NO_PERMISSION] * 9
    async with Producer("PG", stage.names.address) as producer:
        monkeypatch.setattr(producer._client.routes, "_lookup_interval_s", 600.0)
        with pytest.raises(SendFailedError, match="sent 3 times"):
            async with asyncio.timeout(10):
                await producer.send(Message("One", b"x"), timeout_s=60.0)


async def test_a_topic_without_a_route_any_more_is_tried_where_it_was(stage: Stage):
    async with Producer("PG", stage.names.address) as producer:
        await producer.send(Message("One", b"x"))
        del stage.routes["One"]
        stage.a.refusals = [ResponseCode.NO_PERMISSION]
        result = await producer.send(Message("One", b"y"))
    assert result.message_queue.broker_name == "broker-a"


@pytest.mark.parametrize("fails", STALE)
async def test_a_failed_send_to_a_given_queue_refreshes_the_route(stage: Stage, fails: str | int):
    queue = MessageQueue("One", "broker-a", 0)
    config = ClientConfig(stage.names.address, poll_name_server_interval_s=600)  # no refresh but that of the failure
    async with Producer("PG", config) as producer:
        await producer.send(Message("One", b"x"), queue)
        if fails == "dead":
            await stage.a.stop()
        else:
            stage.a.refusals = [int(fails)]
        stage.routes["One"] = route_of({"broker-a": stage.b.address})
        with pytest.raises((RemotingError, BrokerResponseError)):
            await producer.send(Message("One", b"y"), queue)
        await until(lambda: producer._client.routes.broker_address(queue) == stage.b.address)
        await producer.send(Message("One", b"z"), queue)
    assert [asked.body for asked in stage.b.of(SEND)] == [b"z"]


async def test_a_refusal_that_lasts_is_raised_at_once(stage: Stage):
    stage.a.refusals = [ResponseCode.MESSAGE_ILLEGAL] * 9
    async with Producer("PG", stage.names.address) as producer:
        with pytest.raises(BrokerResponseError, match="CODE: 13  DESC: refused"):
            await producer.send(Message("One", b"x"))
    assert len(stage.sent()) == 1


async def test_after_all_tries_every_cause_is_reported(stage: Stage):
    stage.a.refusals = [ResponseCode.SYSTEM_BUSY] * 9
    async with Producer("PG", stage.names.address) as producer:
        with pytest.raises(SendFailedError, match=r"sent 3 times .* broker-a, broker-a, broker-a: CODE: 2") as caught:
            await producer.send(Message("One", b"x"))
    assert [cause.code for cause in caught.value.causes if isinstance(cause, BrokerResponseError)] == [2, 2, 2]


async def test_a_given_queue_is_tried_once(stage: Stage):
    await stage.a.stop()
    async with Producer("PG", stage.names.address) as producer:
        with pytest.raises(RemotingConnectError):
            await producer.send(Message("One", b"x"), MessageQueue("One", "broker-a", 0))


async def test_a_broker_that_does_not_answer_costs_no_more_than_the_timeout():
    async with (
        ScriptedServer({SEND: lambda _fields, _body: None}) as mute,
        name_server({"T": route_of({"mute": mute.address})}) as names,
        Producer("PG", names.address, send_timeout_s=600) as producer,
    ):
        with pytest.raises(SendFailedError) as caught:
            await producer.send(Message("T", b"x"), timeout_s=1.0)
        assert len(mute.of(SEND)) == 1, "no time is left for another try"
    assert isinstance(caught.value.causes[0], RemotingTimeoutError)


async def test_a_time_limit_that_the_route_uses_up_is_named(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    async with ClientInstance(stage.names.address) as client, Producer("PG", client=client) as producer:
        find = client.routes.publish_route

        async def find_late(topic: str, timeout_s: float) -> TopicRoute:
            await asyncio.sleep(0.02)
            return await find(topic, timeout_s)

        monkeypatch.setattr(client.routes, "publish_route", find_late)
        with pytest.raises(RemotingTimeoutError, match=r"not sent, topic T: .* the limit is 10 ms; raise the limit"):
            await producer.send(Message("T", b"x"), timeout_s=0.01)
    assert stage.sent() == []


def test_a_send_has_at_least_one_try():
    with pytest.raises(OptionError, match="retry_times_when_send_failed is -1; give a whole number from 0"):
        Producer("PG", "127.0.0.1:1", retry_times_when_send_failed=-1)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_a_stored_message_is_no_failure(stage: Stage, code: int, status: SendStatus):
    stage.a.refusals = [code]
    async with Producer("PG", stage.names.address) as producer:
        assert (await producer.send(Message("One", b"x"))).send_status is status


async def test_unless_asked_for(stage: Stage):
    stage.a.refusals = [ResponseCode.FLUSH_DISK_TIMEOUT]
    async with Producer("PG", stage.names.address, retry_another_broker_when_not_store_ok=True) as producer:
        assert (await producer.send(Message("One", b"x"))).send_status is SendStatus.SEND_OK
    assert len(stage.sent()) == 2


async def test_a_batch_is_one_request(stage: Stage):
    messages = [Message("One", b"%d" % index, tags=f"t{index}", flag=index) for index in range(3)]
    async with Producer("PG", stage.names.address) as producer:
        (result,) = await producer.send_batch(messages)
    (asked,) = stage.a.of(RequestCode.SEND_BATCH_MESSAGE)
    parts = split_batch(asked.body)
    ids = [decode_properties(properties)["UNIQ_KEY"] for properties in parts.properties]
    assert [(flag, bytes(body)) for flag, body, _ in parts.messages()] == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert asked.fields["m"] == "true"
    assert "UNIQ_KEY" in decode_properties(asked.fields["i"].encode())
    assert result.msg_id == ",".join(ids)


def beat_of_4(code: int = ResponseCode.SUCCESS) -> Script:
    """Return a script of heartbeats to a broker 4.9.7."""

    def beat(_fields: dict[str, str], _body: bytes) -> Command:
        answer = response(code, "busy" if code else None)
        answer.version = 407  # V4_9_7
        return answer

    return beat


def batch_properties(broker: Broker) -> list[dict[str, str]]:
    """Return the properties of each batch that a broker got."""
    return [decode_properties(asked.fields["i"].encode()) for asked in broker.of(RequestCode.SEND_BATCH_MESSAGE)]


@pytest.mark.parametrize("code", [ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY])
async def test_a_batch_has_no_id_of_its_own_for_brokers_of_4(code: ResponseCode):
    """They would give the id of the batch to each of its messages."""
    async with (
        Broker({RequestCode.HEART_BEAT: beat_of_4(code)}) as broker,
        name_server({"T": route_of({"broker-a": broker.address})}) as names,
        Producer("PG", names.address) as producer,
    ):
        await producer.send_batch([Message("T", b"x")])
    assert batch_properties(broker) == [{"WAIT": "true"}]


async def test_a_retried_batch_follows_the_version_of_each_broker():
    async with (
        Broker({RequestCode.HEART_BEAT: beat_of_4()}) as old,
        Broker() as new,
        name_server({"T": route_of({"broker-a": old.address, "broker-b": new.address})}) as names,
        Producer("PG", names.address) as producer,
    ):
        old.refusals, new.refusals = [ResponseCode.SYSTEM_BUSY], [ResponseCode.SYSTEM_BUSY]
        await producer.send_batch([Message("T", b"x")])
    assert batch_properties(old)[0] == {"WAIT": "true"}
    assert batch_properties(new)[0].keys() == {"WAIT", "UNIQ_KEY"}


async def test_first_batches_share_one_heartbeat(stage: Stage):
    async with Producer("PG", stage.names.address) as producer:
        await asyncio.gather(*(producer.send_batch([Message("One", b"x")]) for _ in range(20)))
        assert len(stage.a.of(RequestCode.HEART_BEAT)) == 1
    assert len(stage.a.of(RequestCode.SEND_BATCH_MESSAGE)) == 20


async def test_the_limit_of_a_batch_includes_the_heartbeat_before_it():
    async with (
        Broker({RequestCode.HEART_BEAT: lambda _fields, _body: None}) as mute,
        name_server({"T": route_of({"mute": mute.address})}) as names,
        Producer("PG", ClientConfig(names.address, mq_client_api_timeout_s=600)) as producer,
        asyncio.timeout(60),
    ):
        with pytest.raises(SendFailedError, match="to a heartbeat within") as caught:
            await producer.send_batch([Message("T", b"x")], timeout_s=0.5)
        assert mute.of(RequestCode.SEND_BATCH_MESSAGE) == []
    assert isinstance(caught.value.causes[0], RemotingTimeoutError)


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "empty"),
        ([Message("A", b"x"), Message("B", b"x")], "one topic, but this one has A and B"),
        ([Message("A", b"x", delay_time_level=1)], "delayed"),
        ([Message("A", b"x"), Message("A", b"x", wait_store_msg_ok=False)], "wait"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
    ],
)
async def test_a_batch_has_rules(stage: Stage, messages: list[Message], text: str):
    async with Producer("PG", stage.names.address) as producer:
        with pytest.raises(InvalidMessageError, match=text):
            await producer.send_batch(messages)


async def test_oneway_does_not_wait(stage: Stage):
    async with Producer("PG", stage.names.address) as producer:
        await producer.send_oneway(Message("One", b"x"))
        await until(lambda: bool(stage.a.of(SEND)))
    assert stage.a.of(SEND)[0].oneway


async def test_a_new_topic_goes_by_the_template(stage: Stage):
    stage.routes["TBW102"] = route_of({"broker-a": stage.a.address}, queues=8, perm=7)
    async with Producer("PG", stage.names.address) as producer:
        results = [await producer.send(Message("New", b"x")) for _ in range(8)]
    assert {result.message_queue.queue_id for result in results} == {0, 1, 2, 3}
    assert {fields["b"] for _, fields, _ in stage.sent()} == {"New"}


async def test_an_unknown_topic_is_an_error_without_a_template(stage: Stage):
    async with Producer("PG", stage.names.address) as producer:
        with pytest.raises(TopicRouteError, match="New"):
            await producer.send(Message("New", b"x"))


async def test_a_broker_is_greeted_once_and_signed_off(stage: Stage):
    async with Producer("PG", stage.names.address) as producer:
        for _ in range(3):
            await producer.send(Message("One", b"x"))
    (heartbeat,) = stage.a.of(RequestCode.HEART_BEAT)
    (goodbye,) = stage.a.of(RequestCode.UNREGISTER_CLIENT)
    beat = HeartbeatData.decode(heartbeat.body)
    assert [each.group_name for each in beat.producer_data_set] == ["PG"]
    assert goodbye.fields == {"clientID": beat.client_id, "producerGroup": "PG"}


async def test_only_a_started_producer_sends(stage: Stage):
    producer = Producer("PG", stage.names.address)
    with pytest.raises(ClientStateError, match="PG is not started"):
        await producer.send(Message("One", b"x"))
    async with producer:
        pass
    with pytest.raises(ClientStateError):
        await producer.send(Message("One", b"x"))


class Notes:
    """A hook that notes what it sees, and fails afterwards."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []

    def send_message_before(self, context: SendMessageContext) -> None:
        self.seen.append(("before", context.queue.broker_name, context.msg_type.value))
        raise ValueError("broken hook")

    def send_message_after(self, context: SendMessageContext) -> None:
        outcome = context.result.send_status.name if context.result else str(type(context.error).__name__)
        self.seen.append(("after", context.producer_group, outcome, context.messages[0].topic))


async def test_hooks_see_each_try_and_their_errors_change_nothing(stage: Stage, caplog: pytest.LogCaptureFixture):
    stage.a.refusals = [ResponseCode.SYSTEM_BUSY]
    notes = Notes()
    async with Producer("PG", stage.names.address, hooks=[notes]) as producer:
        await producer.send(Message("One", b"x"))
        await producer.send_oneway(Message("One", b"x"))
    assert notes.seen == [
        ("before", "broker-a", "Normal"),
        ("after", "PG", "SystemBusyError", "One"),
        ("before", "broker-a", "Normal"),
        ("after", "PG", "SEND_OK", "One"),
        ("before", "broker-a", "Normal"),
        ("after", "PG", "NoneType", "One"),
    ]
    assert "broken hook" in caplog.text


async def test_hooks_see_the_end_of_a_one_way_send_that_fails(stage: Stage):
    await stage.a.stop()
    notes = Notes()
    async with Producer("PG", stage.names.address, hooks=[notes]) as producer:
        with pytest.raises(RemotingConnectError):
            await producer.send_oneway(Message("One", b"x"))
    assert notes.seen == [("before", "broker-a", "Normal"), ("after", "PG", "RemotingConnectError", "One")]


async def test_hooks_see_the_end_of_a_cancelled_send():
    notes = Notes()
    async with (
        ScriptedServer({SEND: lambda _fields, _body: None}) as mute,
        name_server({"T": route_of({"mute": mute.address})}) as names,
        Producer("PG", names.address, hooks=[notes]) as producer,
    ):
        send = asyncio.create_task(producer.send(Message("T", b"x")))
        await until(lambda: bool(mute.of(SEND)))
        send.cancel()
        with pytest.raises(asyncio.CancelledError):
            await send
    assert notes.seen == [("before", "mute", "Normal"), ("after", "PG", "CancelledError", "T")]


async def test_hooks_see_names_without_the_namespace():
    notes = Notes()
    async with name_server({"NS%T": route_of({"broker-a": "127.0.0.1:1"})}) as names:
        config = ClientConfig(names.address, namespace="NS")
        async with Producer("PG", config, hooks=[notes], retry_times_when_send_failed=0) as producer:
            with pytest.raises(SendFailedError):
                await producer.send(Message("T", b"x"))
    assert notes.seen[-1] == ("after", "PG", "RemotingConnectError", "T")


async def test_messages_with_one_sharding_key_go_to_one_queue(stage: Stage):
    async with Producer("PG", stage.names.address) as producer:
        results = [await producer.send(Message("T", b"x", sharding_key="order-7")) for _ in range(6)]
        other = [await producer.send(Message("T", b"x", sharding_key=f"order-{n}")) for n in range(20)]
    assert len({result.message_queue for result in results}) == 1
    assert len({result.message_queue for result in other}) > 1
    assert {result.msg_type for result in results} == {MessageType.ORDER}


async def test_a_slow_broker_is_avoided_when_asked_for(stage: Stage):
    stage.a.refusals = [ResponseCode.SYSTEM_BUSY] * 2
    async with Producer("PG", stage.names.address, send_latency_enable=True) as producer:
        for _ in range(12):
            await producer.send(Message("T", b"x"))
    assert len(stage.a.of(SEND)) == 1
    assert len(stage.b.of(SEND)) == 12


async def test_a_batch_too_large_for_one_request_is_split(stage: Stage):
    messages = [Message("One", b"x" * 400) for _ in range(10)]
    async with Producer("PG", stage.names.address, max_message_size=1500) as producer:
        results = await producer.send_batch(messages)
    requests = stage.a.of(RequestCode.SEND_BATCH_MESSAGE)
    assert [len(split_batch(asked.body).bodies) for asked in requests] == [3, 3, 3, 1]
    assert len({unique_id for result in results for unique_id in result.msg_id.split(",")}) == 10


async def test_more_sends_than_fit_wait_for_their_turn(stage: Stage):
    async with Producer("PG", stage.names.address, back_pressure_sends=1) as producer:
        results = await asyncio.gather(*(producer.send(Message("One", b"x")) for _ in range(5)))
    assert [result.queue_offset for result in results] == [0, 1, 2, 3, 4]


async def test_queues_without_a_broker_are_refused_at_once():
    async with name_server({}) as names, Producer("PG", names.address) as producer:
        with pytest.raises(TopicRouteError, match="no broker is registered at the name servers: start one"):
            await producer.fetch_publish_queues("T")


async def test_a_send_during_the_restart_of_the_only_broker_waits_for_it(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    routes = dict(stage.routes)
    stage.routes.clear()
    async with Producer("PG", stage.names.address) as producer:
        monkeypatch.setattr(producer._client.routes, "_lookup_interval_s", 0.01)
        sending = asyncio.create_task(producer.send(Message("One", b"x"), timeout_s=60.0))
        await until(lambda: len(stage.names.of(RequestCode.GET_BROKER_CLUSTER_INFO)) >= 3)
        stage.routes.update(routes)
        assert (await sending).message_queue.broker_name == "broker-a"
