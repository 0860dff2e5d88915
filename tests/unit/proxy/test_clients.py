"""Settings, heartbeats and telemetry commands of clients."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("google.protobuf", reason="the extra grpc is not installed")

from google.protobuf.message import Message

from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.remoting.bodies.client import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeType,
    HeartbeatData,
)
from rocketbroker.codec.remoting.bodies.topic_config import (
    CustomizedRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
)
from rocketbroker.codec.remoting.headers.admin import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common import event_log
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import BrokerResponseError, RemotingSendError, RemotingTimeoutError
from rocketbroker.proxy import clients as clients_module
from rocketbroker.proxy.call_context import CallContext, StatusError, status_of
from rocketbroker.proxy.clients import ProxyClient
from rocketbroker.proxy.messaging_pb2 import (
    ClientType,
    Code,
    EndTransactionRequest,
    FilterExpression,
    FilterType,
    HeartbeatRequest,
    MessageType,
    NotifyClientTerminationRequest,
    Resource,
    Settings,
    Status,
    TelemetryCommand,
    ThreadStackTrace,
    TransactionResolution,
    TransactionSource,
    VerifyMessageResult,
)
from rocketbroker.proxy.messaging_service import MessagingService
from tests.support.proxy_brokers import ENDPOINTS, FakeBrokers
from tests.support.proxy_calls import CONTEXT, Stream, consumer, producer, refusal
from tests.support.waiting import turns, until


@pytest.fixture
def brokers() -> FakeBrokers:
    brokers = FakeBrokers()
    brokers.add_topic("Orders", read_queue_nums=2, write_queue_nums=2)
    brokers.add_group("billing", retry_max_times=3)
    return brokers


@pytest.fixture
def service(brokers: FakeBrokers) -> MessagingService:
    return MessagingService(brokers, ENDPOINTS)


RETRY_DELAYS_S = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


# -- settings


async def test_a_producers_settings_come_back_with_the_servers(service: MessagingService, brokers: FakeBrokers):
    stream = Stream()
    await service.telemetry(producer("Orders"), CONTEXT, stream)

    [command] = stream.sent
    settings = command.settings
    assert command.status.code == Code.OK
    assert settings.client_type == ClientType.PRODUCER
    assert [topic.name for topic in settings.publishing.topics] == ["Orders"]
    assert settings.publishing.max_body_size == 4_194_304
    assert settings.publishing.validate_message_type
    backoff = settings.backoff_policy.exponential_backoff
    assert settings.backoff_policy.max_attempts == 3
    assert (backoff.initial.nanos, backoff.max.seconds, backoff.multiplier) == (10_000_000, 1, 2.0)
    assert settings.HasField("metric")
    assert not settings.metric.on
    [(channel, broker, heartbeat)] = brokers.requests
    assert (channel.client_id, channel.remote_address, broker) == ("client-1", "127.0.0.1:5000", "")
    assert heartbeat.code == RequestCode.HEART_BEAT
    assert [each.group_name for each in HeartbeatData.decode(heartbeat.body).producer_data_set] == ["Orders"]


async def test_the_servers_settings_are_those_of_its_file(brokers: FakeBrokers):
    config = ProxyConfig(
        max_message_size=1000,
        enable_topic_message_type_check=False,
        grpc_client_producer_max_attempts=5,
        grpc_client_producer_backoff_initial_millis=20,
        grpc_client_producer_backoff_max_millis=3000,
        grpc_client_producer_backoff_multiplier=4,
        grpc_client_consumer_long_polling_batch_size=8,
        grpc_client_consumer_max_long_polling_timeout_millis=7500,
    )
    service, stream = MessagingService(brokers, ENDPOINTS, config=config), Stream()
    await service.telemetry(producer("Orders"), CONTEXT, stream)
    await service.telemetry(consumer("billing"), CONTEXT, stream)

    first, second = (each.settings for each in stream.sent)
    assert (first.publishing.max_body_size, first.publishing.validate_message_type) == (1000, False)
    backoff = first.backoff_policy.exponential_backoff
    assert first.backoff_policy.max_attempts == 5
    assert (backoff.initial.nanos, backoff.max.seconds, backoff.multiplier) == (20_000_000, 3, 4.0)
    assert second.subscription.receive_batch_size == 8
    longest = second.subscription.long_polling_timeout
    assert (longest.seconds, longest.nanos) == (7, 500_000_000)


async def test_a_producer_may_name_its_topics_later(service: MessagingService):
    stream = Stream()
    await service.telemetry(producer(), CONTEXT, stream)

    assert stream.sent[0].settings.publishing.max_body_size == 4_194_304


async def test_a_consumers_settings_come_back_with_the_groups(service: MessagingService, brokers: FakeBrokers):
    stream = Stream()
    await service.telemetry(consumer("billing"), CONTEXT, stream)

    settings = stream.sent[0].settings
    subscription = settings.subscription
    assert (subscription.fifo, subscription.receive_batch_size) == (False, 32)
    assert subscription.long_polling_timeout.seconds == 20
    assert settings.backoff_policy.max_attempts == 4
    delays = [each.seconds for each in settings.backoff_policy.customized_backoff.next]
    assert delays == RETRY_DELAYS_S
    [data] = HeartbeatData.decode(brokers.requests[0][2].body).consumer_data_set
    assert (data.group_name, data.consume_type) == ("billing", ConsumeType.CONSUME_PASSIVELY)
    assert [(each.topic, each.sub_string) for each in data.subscription_data_set] == [("Orders", "*")]


@pytest.mark.parametrize(
    ("kind", "expression", "sent"),
    [
        (FilterType.TAG, "a || b", ("a || b", ["a", "b"], [97, 98], "TAG")),
        (FilterType.SQL, "n > 5", ("n > 5", [], [], "SQL92")),
    ],
)
async def test_subscriptions_are_those_of_remoting(
    service: MessagingService, brokers: FakeBrokers, kind: FilterType, expression: str, sent: tuple[object, ...]
):
    filtered = consumer("billing", ClientType.SIMPLE_CONSUMER, FilterExpression(type=kind, expression=expression))
    await service.telemetry(filtered, CONTEXT, Stream())

    [data] = HeartbeatData.decode(brokers.requests[0][2].body).consumer_data_set
    [each] = data.subscription_data_set
    assert data.consume_type == ConsumeType.CONSUME_ACTIVELY
    assert (each.sub_string, each.tags_set, each.code_set, each.expression_type) == sent


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (GroupRetryPolicy(GroupRetryPolicyType.EXPONENTIAL), [5.0, 7200.0, 2.0]),
        (GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy([1500])), [1.5]),
        (GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy([])), RETRY_DELAYS_S),
    ],
)
async def test_a_group_has_its_own_retry_policy(
    service: MessagingService, brokers: FakeBrokers, policy: GroupRetryPolicy, delays: list[float]
):
    brokers.add_group("billing", consume_message_orderly=True, group_retry_policy=policy)
    stream = Stream()
    await service.telemetry(consumer("billing"), CONTEXT, stream)

    settings = stream.sent[0].settings
    assert settings.subscription.fifo
    if policy.type is GroupRetryPolicyType.EXPONENTIAL:
        backoff = settings.backoff_policy.exponential_backoff
        assert [backoff.initial.seconds, backoff.max.seconds, backoff.multiplier] == delays
    else:
        next_delays = settings.backoff_policy.customized_backoff.next
        assert [each.seconds + each.nanos / 1e9 for each in next_delays] == delays


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (TelemetryCommand(settings=Settings(client_type=ClientType.PRODUCER)), Code.BAD_REQUEST),
        (producer("no blank"), Code.ILLEGAL_TOPIC),
        (consumer("no blank"), Code.ILLEGAL_CONSUMER_GROUP),
        (consumer("CID_RMQ_SYS_x"), Code.ILLEGAL_CONSUMER_GROUP),
        (consumer("billing", ClientType.PRODUCER), Code.UNRECOGNIZED_CLIENT_TYPE),
        (consumer("billing", 99), Code.UNRECOGNIZED_CLIENT_TYPE),  # type: ignore[arg-type]  # no type has this number
        (producer(*["T" * 100] * 3000), Code.BAD_REQUEST),
    ],
)
async def test_wrong_settings_are_refused(
    service: MessagingService, brokers: FakeBrokers, command: TelemetryCommand, code: Code
):
    stream = Stream()
    error = await refusal(service.telemetry(command, CONTEXT, stream))

    assert error.code == code
    assert (stream.sent, brokers.requests) == ([], [])


async def test_a_group_that_does_not_exist_is_refused(service: MessagingService):
    with pytest.raises(BrokerResponseError) as raised:
        await service.telemetry(consumer("unknown"), CONTEXT, Stream())

    assert status_of(raised.value).code == Code.CONSUMER_GROUP_NOT_FOUND


async def test_an_answer_that_nobody_waits_for_is_ignored(service: MessagingService, brokers: FakeBrokers):
    stream = Stream()
    await service.telemetry(TelemetryCommand(thread_stack_trace=ThreadStackTrace(nonce="1")), CONTEXT, stream)

    assert (stream.sent, brokers.requests) == ([], [])


# -- heartbeats and the end


async def test_a_heartbeat_registers_the_client_again(service: MessagingService, brokers: FakeBrokers):
    await service.telemetry(consumer("billing"), CONTEXT, Stream())
    later = CallContext("client-1", "JAVA", "5.1.0", "", "127.0.0.1:6000", None)
    reply = await service.heartbeat(HeartbeatRequest(group=Resource(name="billing")), later)

    assert reply.status.code == Code.OK
    [_, (channel, _, command)] = brokers.requests
    assert channel.remote_address == "127.0.0.1:6000"
    assert HeartbeatData.decode(command.body).consumer_data_set[0].group_name == "billing"


async def test_a_heartbeat_for_another_group_than_that_of_the_settings_is_refused(
    service: MessagingService, brokers: FakeBrokers
):
    await service.telemetry(consumer("billing"), CONTEXT, Stream())
    error = await refusal(service.heartbeat(HeartbeatRequest(group=Resource(name="other")), CONTEXT))

    assert error.code == Code.ILLEGAL_CONSUMER_GROUP
    assert "for group other" in error.message
    assert "name billing" in error.message
    assert len(brokers.requests) == 1


@pytest.mark.parametrize("settings", [producer("Orders"), consumer("billing")])
async def test_a_heartbeat_needs_the_rights_of_the_settings_that_it_registers(
    service: MessagingService, brokers: FakeBrokers, settings: TelemetryCommand
):
    asked: list[Message] = []
    await service.telemetry(settings, CONTEXT, Stream())
    client = service._clients.of(CONTEXT)
    heartbeat = HeartbeatRequest(group=Resource(name="billing"))
    allowed = dataclasses.replace(CONTEXT, refusal=asked.append)
    assert (await service.heartbeat(heartbeat, allowed)).status.code == Code.OK
    assert asked == [settings]

    gone = StatusError(Code.FORBIDDEN, "no permission")
    error = await refusal(service.heartbeat(heartbeat, dataclasses.replace(CONTEXT, refusal=lambda _: gone)))
    assert error is gone
    assert [command.code for _, _, command in brokers.requests] == [RequestCode.HEART_BEAT] * 2
    await until(lambda: brokers.gone)
    assert brokers.gone == [client]
    assert (await refusal(service.heartbeat(heartbeat, allowed))).code == Code.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.parametrize(
    ("older", "newer", "left"),
    [
        (consumer("billing"), producer("Orders"), [(None, "billing")]),
        (producer("Orders", "Bills"), producer("Bills"), [("Orders", None)]),
        (producer("Orders"), consumer("billing"), [("Orders", None)]),
        (consumer("billing"), consumer("billing", ClientType.SIMPLE_CONSUMER), []),
    ],
)
async def test_a_client_leaves_the_groups_that_its_new_settings_do_not_name(
    service: MessagingService,
    brokers: FakeBrokers,
    older: TelemetryCommand,
    newer: TelemetryCommand,
    left: list[tuple[str | None, str | None]],
):
    stream = Stream()
    await service.telemetry(older, CONTEXT, stream)
    del brokers.requests[:]
    await service.telemetry(newer, CONTEXT, stream)

    *leaves, last = [command for _, _, command in brokers.requests]
    assert last.code == RequestCode.HEART_BEAT
    assert [(each.header.producer_group, each.header.consumer_group) for each in leaves] == left
    assert {each.code for each in leaves} <= {RequestCode.UNREGISTER_CLIENT}


async def test_a_client_whose_stream_ends_by_rights_is_forgotten(service: MessagingService, brokers: FakeBrokers):
    stream = Stream()
    await service.telemetry(consumer("billing"), CONTEXT, stream)
    client = service._clients.of(CONTEXT)
    service.telemetry_refused(CONTEXT, Stream())
    assert not client.is_gone

    service.telemetry_refused(CONTEXT, stream)
    service.telemetry_closed(CONTEXT, stream)
    await until(lambda: brokers.gone)
    assert (brokers.gone, client.is_gone) == ([client], True)


async def test_a_silent_client_is_forgotten_once_its_stream_is_closed(service: MessagingService):
    stream = Stream()
    await service.telemetry(producer("Orders"), CONTEXT, stream)
    now = asyncio.get_running_loop().time()
    service.forget_silent(now + 1)
    assert (await service.heartbeat(HeartbeatRequest(), CONTEXT)).status.code == Code.OK

    service.telemetry_closed(CONTEXT, Stream())
    service.forget_silent(now + 1)
    assert (await service.heartbeat(HeartbeatRequest(), CONTEXT)).status.code == Code.OK

    service.telemetry_closed(CONTEXT, stream)
    service.forget_silent(now)
    assert (await service.heartbeat(HeartbeatRequest(), CONTEXT)).status.code == Code.OK
    service.forget_silent(asyncio.get_running_loop().time() + 1)
    assert (await refusal(service.heartbeat(HeartbeatRequest(), CONTEXT))).code == Code.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.parametrize(
    "method",
    [
        lambda service: service.heartbeat(HeartbeatRequest(), CONTEXT),
        lambda service: service.notify_client_termination(NotifyClientTerminationRequest(), CONTEXT),
    ],
)
async def test_a_client_without_settings_is_unrecognized(
    service: MessagingService, method: Callable[[MessagingService], Awaitable[object]]
):
    assert (await refusal(method(service))).code == Code.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.parametrize(
    ("settings", "headers"),
    [
        (producer("Orders", "Bills"), [("client-1", "Orders", None), ("client-1", "Bills", None)]),
        (consumer("billing"), [("client-1", None, "billing")]),
    ],
)
async def test_the_end_of_a_client_unregisters_it(
    service: MessagingService, brokers: FakeBrokers, settings: TelemetryCommand, headers: list[tuple[str, ...]]
):
    await service.telemetry(settings, CONTEXT, Stream())
    del brokers.requests[:]
    reply = await service.notify_client_termination(NotifyClientTerminationRequest(), CONTEXT)

    assert reply.status.code == Code.OK
    assert {command.code for _, _, command in brokers.requests} == {RequestCode.UNREGISTER_CLIENT}
    sent = [command.header for _, _, command in brokers.requests]
    assert [(each.client_id, each.producer_group, each.consumer_group) for each in sent] == headers
    error = await refusal(service.heartbeat(HeartbeatRequest(), CONTEXT))
    assert error.code == Code.UNRECOGNIZED_CLIENT_TYPE


async def test_a_brokers_refusal_is_that_of_the_call(service: MessagingService, brokers: FakeBrokers):
    await service.telemetry(producer("Orders"), CONTEXT, Stream())
    brokers.answer = response(ResponseCode.SYSTEM_BUSY, "too many clients")
    with pytest.raises(BrokerResponseError) as raised:
        await service.heartbeat(HeartbeatRequest(), CONTEXT)

    status = status_of(raised.value)
    assert (status.code, status.message) == (Code.TOO_MANY_REQUESTS, "too many clients")


async def test_an_unknown_group_of_tags_is_refused(service: MessagingService):
    wrong = consumer("billing", filtered_by=FilterExpression(expression="||"))

    assert (await refusal(service.telemetry(wrong, CONTEXT, Stream()))).code == Code.ILLEGAL_FILTER_EXPRESSION


async def test_a_client_that_is_forgotten_is_gone_for_the_brokers_too(service: MessagingService, brokers: FakeBrokers):
    await service.telemetry(producer("Orders"), CONTEXT, Stream())
    client = service._clients.of(CONTEXT)
    await service.notify_client_termination(NotifyClientTerminationRequest(), CONTEXT)
    await until(lambda: brokers.gone)

    assert brokers.gone == [client]
    assert service._clients.of(CONTEXT) is not client


async def test_there_is_a_limit_of_clients(service: MessagingService, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clients_module, "_MOST_CLIENTS", 1)
    service._clients.of(CONTEXT)
    service._clients.of(CONTEXT)
    with pytest.raises(StatusError, match="connect to another one") as raised:
        service._clients.of(CallContext("client-2", "JAVA", "5.1.0", "", "127.0.0.1:5000", None))

    assert raised.value.code == Code.TOO_MANY_REQUESTS


async def test_a_client_that_is_unknown_may_return_messages_and_is_not_kept(
    service: MessagingService, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(clients_module, "_MOST_CLIENTS", 1)
    known = service._clients.of(CONTEXT)
    stranger = service._clients.client_for_return(CallContext("client-2", "JAVA", "5.1.0", "", "127.0.0.1:5000", None))

    assert service._clients.client_for_return(CONTEXT) is known
    assert (stranger.client_id, stranger.is_gone, known.is_gone) == ("client-2", True, False)
    assert list(service._clients._clients) == [("", "client-1")]


async def test_another_user_neither_ends_a_client_nor_takes_its_stream(service: MessagingService):
    joe, ann = (dataclasses.replace(CONTEXT, user=user) for user in ("joe", "ann"))
    stream, other = Stream(), Stream()
    await service.telemetry(producer("Orders"), joe, stream)
    ends = service.notify_client_termination(NotifyClientTerminationRequest(), ann)
    assert (await refusal(ends)).code == Code.UNRECOGNIZED_CLIENT_TYPE
    await service.telemetry(producer("Orders"), ann, other)
    client = service._clients.of(joe)
    assert (client.stream, client.is_gone) == (stream, False)
    await service.notify_client_termination(NotifyClientTerminationRequest(), ann)
    service.telemetry_closed(ann, other)
    assert service._clients.of(joe) is client
    assert (client.stream, client.is_gone) == (stream, False)


async def test_clients_that_come_in_masses_are_counted(
    service: MessagingService, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level("INFO")
    for number in range(50):
        context = CallContext(f"client-{number}", "JAVA", "5.1.0", "", "127.0.0.1:5000", None)
        await service.telemetry(producer("Orders"), context, Stream())
    service._clients.forget_all()

    monkeypatch.setattr(event_log, "_PERIOD_S", 0)
    await service.telemetry(producer("Orders"), CONTEXT, Stream())

    assert len(caplog.messages) == 21
    assert caplog.messages[-1].endswith("; lines left out before this one: 80"), "of 100"


async def test_clients_that_come_change_and_go_are_logged(
    service: MessagingService, brokers: FakeBrokers, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    other = CallContext("client\n2", "GO", "", "", "127.0.0.1:5001", None)
    await service.telemetry(producer(*(f"T{number}" for number in range(12))), CONTEXT, Stream())
    await service.telemetry(consumer("billing"), other, Stream())
    await service.telemetry(producer("Orders"), CONTEXT, Stream())
    await service.telemetry(producer("Orders"), CONTEXT, Stream())
    await service.notify_client_termination(NotifyClientTerminationRequest(), CONTEXT)
    service._clients.of(CONTEXT)
    await service.stop()

    assert [each for each in caplog.messages if each.startswith("client ")] == [
        (
            "client client-1 at 127.0.0.1:5000 has joined: producer of topics T0, T1, T10, T11, T2, T3, T4, T5, T6, T7 "
            "and 2 others, by JAVA 5.1.0"
        ),
        "client client\\n2 at 127.0.0.1:5001 has joined: push consumer of group billing, topics Orders, by GO ",
        "client client-1 at 127.0.0.1:5000 has changed its settings: producer of topics Orders, by JAVA 5.1.0",
        "client client-1 at 127.0.0.1:5000 has left: it says so",
        "client client\\n2 at 127.0.0.1:5001 has left: the port stops",
    ]


# -- commands


def record(body: bytes = b"body", **properties: str) -> bytes:
    raw = encode_properties({"UNIQ_KEY": "A" * 34, **properties})
    host = host_bytes("127.0.0.1", 10911)
    return encode_record(0, 0, 5, 4096, 0, 1, host, 2, host, 0, 0, body, b"Orders", raw)


class Connected:
    """A consumer with a stream."""

    def __init__(self, service: MessagingService) -> None:
        self.service = service
        self.stream = Stream()

    async def connect(self) -> ProxyClient:
        await self.service.telemetry(consumer("billing"), CONTEXT, self.stream)
        self.stream.sent.clear()
        return self.service._clients.of(CONTEXT)

    async def answer(self, command: TelemetryCommand, code: Code) -> None:
        command.status.CopyFrom(Status(code=code, message="said"))
        await self.service.telemetry(command, CONTEXT, self.stream)


async def asked(stream: Stream) -> TelemetryCommand:
    await until(lambda: stream.sent)
    return stream.sent[0]


def verify() -> Command:
    header = ConsumeMessageDirectlyResultRequestHeader(consumer_group="billing", client_id="client-1")
    return request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, record())


def running_info(*, jstack: bool) -> Command:
    header = GetConsumerRunningInfoRequestHeader("billing", "client-1", jstack)
    return request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (Code.OK, CMResult.CR_SUCCESS),
        (Code.FAILED_TO_CONSUME_MESSAGE, CMResult.CR_LATER),
        (Code.MESSAGE_CORRUPTED, CMResult.CR_RETURN_NULL),
        (Code.INTERNAL_ERROR, None),
    ],
)
async def test_a_client_consumes_a_message_directly(service: MessagingService, code: Code, result: CMResult | None):
    connected = Connected(service)
    answer = asyncio.create_task((await connected.connect()).invoke(verify(), 60))
    question = (await asked(connected.stream)).verify_message_command
    assert (question.message.body, question.message.system_properties.message_id) == (b"body", "A" * 34)
    verified = VerifyMessageResult(nonce=question.nonce)
    await connected.answer(TelemetryCommand(verify_message_result=verified), code)

    found = ConsumeMessageDirectlyResult.decode((await answer).body)
    assert (found.consume_result, found.remark) == (result, "said")


@pytest.mark.parametrize(
    ("code", "answered"),
    [
        (Code.OK, ResponseCode.SUCCESS),
        (Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED, ResponseCode.NO_PERMISSION),
        (Code.INTERNAL_ERROR, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_client_prints_its_stacks(service: MessagingService, code: Code, answered: ResponseCode):
    connected = Connected(service)
    answer = asyncio.create_task((await connected.connect()).invoke(running_info(jstack=True), 60))
    question = (await asked(connected.stream)).print_thread_stack_trace_command
    trace = ThreadStackTrace(nonce=question.nonce, thread_stack_trace="main")
    await connected.answer(TelemetryCommand(thread_stack_trace=trace), code)

    found = await answer
    assert found.code == answered
    if answered == ResponseCode.SUCCESS:
        info = ConsumerRunningInfo.decode(found.body)
        assert info.jstack == "main"
        assert [each.topic for each in info.subscription_set or []] == ["Orders"]


async def test_its_subscriptions_are_known_without_asking(service: MessagingService):
    connected = Connected(service)
    found = await (await connected.connect()).invoke(running_info(jstack=False), 60)

    assert connected.stream.sent == []
    assert ConsumerRunningInfo.decode(found.body).subscription_set is not None


async def test_a_question_ends_with_the_time_the_stream_or_the_client(service: MessagingService):
    connected = Connected(service)
    client = await connected.connect()
    with pytest.raises(RemotingTimeoutError, match="did not answer within"):
        await client.invoke(verify(), 0.01)
    waiting = asyncio.create_task(client.invoke(verify(), 60))
    await turns()
    service.telemetry_closed(CONTEXT, connected.stream)
    with pytest.raises(RemotingSendError, match="closed its telemetry stream"):
        await waiting
    with pytest.raises(RemotingSendError, match="has no telemetry stream"):
        await client.invoke(verify(), 60)
    assert client._asked == {}


async def test_other_questions_mean_nothing_to_a_client(service: MessagingService):
    connected = Connected(service)
    client = await connected.connect()
    answer = await client.invoke(request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT), 60)

    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert not client.send_oneway(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED))
    assert connected.stream.sent == []


def check(group: str = "Orders") -> Command:
    header = CheckTransactionStateRequestHeader(5, 4096, "RMQ_SYS_TRANS_HALF_TOPIC", transaction_id="A" * 34)
    header.broker_name = "broker-b"
    body = record(b"half", TRAN_MSG="true", TRANSACTION_CHECK_TIMES="1", __transactionId__="A" * 34, PGROUP=group)
    return request(RequestCode.CHECK_TRANSACTION_STATE, header, body, oneway=True)


async def test_the_outcome_of_a_transaction_is_asked_for_and_sent_to_its_broker(
    service: MessagingService, brokers: FakeBrokers
):
    stream = Stream()
    await service.telemetry(producer("Orders"), CONTEXT, stream)
    stream.sent.clear()
    assert service._clients.of(CONTEXT).send_oneway(check())

    question = stream.sent[0].recover_orphaned_transaction_command
    assert question.transaction_id == "A" * 34
    assert question.message.body == b"half"
    assert question.message.system_properties.message_type == MessageType.TRANSACTION
    assert question.message.user_properties["TRANSACTION_CHECK_TIMES"] == "1"
    end = EndTransactionRequest(
        topic=question.message.topic,
        transaction_id=question.transaction_id,
        message_id="A" * 34,
        resolution=TransactionResolution.COMMIT,
        source=TransactionSource.SOURCE_SERVER_CHECK,
    )
    assert (await service.end_transaction(end, CONTEXT)).status.code == Code.OK
    _, broker_name, command = brokers.requests[-1]
    header = command.header
    assert isinstance(header, EndTransactionRequestHeader)
    assert (broker_name, header.tran_state_table_offset, header.commit_log_offset) == ("broker-b", 5, 4096)
    assert (header.from_transaction_check, header.commit_or_rollback, header.producer_group) == (True, 8, "Orders")


async def test_a_client_is_not_asked_about_another_topic_than_its_group(service: MessagingService):
    """A producer of remoting may have a group with the name of a topic, and other topics."""
    stream = Stream()
    await service.telemetry(producer("Orders"), CONTEXT, stream)
    stream.sent.clear()
    assert not service._clients.of(CONTEXT).send_oneway(check("Payments"))
    assert stream.sent == []


async def test_a_client_without_a_stream_is_not_asked(service: MessagingService):
    assert not service._clients.of(CONTEXT).send_oneway(check())
