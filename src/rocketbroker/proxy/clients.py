"""Clients of the front: settings, heartbeats, and commands by telemetry (ClientActivity, GrpcClientChannel).

Clients are known by their user and their id: an id is the client's choice, and with access control nobody takes over or
ends the client of another user by it.

A client that was never heard of is served all the same: after a restart some SDKs send and receive for minutes before
they send their settings again. It is kept without settings, and its heartbeats are refused until it sends them.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from rocketbroker.codec.message.message_const import PROPERTY_PRODUCER_GROUP
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.remoting.bodies.client import (
    CMResult,
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rocketbroker.codec.remoting.bodies.topic_config import (
    ExponentialRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)
from rocketbroker.codec.remoting.headers.admin import (
    GetConsumerRunningInfoRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import CheckTransactionStateRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import RemotingSendError, RemotingTimeoutError, shown
from rocketbroker.common.event_log import EventLog
from rocketbroker.proxy.call_context import OK, CallContext, StatusError, check_group, check_topic, succeeded
from rocketbroker.proxy.message_conversion import incoming, to_duration
from rocketbroker.proxy.messaging_pb2 import (
    ClientType,
    Code,
    CustomizedBackoff,
    ExponentialBackoff,
    FilterExpression,
    FilterType,
    HeartbeatRequest,
    HeartbeatResponse,
    Metric,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    PrintThreadStackTraceCommand,
    RecoverOrphanedTransactionCommand,
    Resource,
    Settings,
    TelemetryCommand,
    VerifyMessageCommand,
)
from rocketbroker.proxy.service_manager import ServiceManager
from rocketbroker.proxy.transactions import HalfMessage, OpenTransactions

log = logging.getLogger(__name__)

_MAX_SETTINGS: Final = 256 * 1024
_MOST_CLIENTS: Final = 100_000
_MOST_LOGGED: Final = 10
# Delays of CustomizedRetryPolicy in seconds, where a group has none of its own.
_RETRY_DELAYS_S: Final = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
_CONSUMERS: Final = {
    ClientType.PUSH_CONSUMER: ConsumeType.CONSUME_PASSIVELY,
    ClientType.SIMPLE_CONSUMER: ConsumeType.CONSUME_ACTIVELY,
}
_CONSUME_RESULTS: Final = {
    Code.OK: CMResult.CR_SUCCESS,
    Code.FAILED_TO_CONSUME_MESSAGE: CMResult.CR_LATER,
    Code.MESSAGE_CORRUPTED: CMResult.CR_RETURN_NULL,
}


class TelemetryStream(Protocol):
    """Way of commands to a client."""

    def send(self, command: TelemetryCommand) -> None: ...


class ProxyClient:
    """A client: what the brokers know as a connection.

    Args:
        context: its first call.
        transactions: takes the transactions whose outcome a broker asks for.

    Attributes:
        client_id: id of the client.
        key: by which it is known.
        remote_address: address of its latest call.
        settings: as the client sent them; None before that.
        stream: its open telemetry stream.
        last_call: time of the event loop of its latest call.
        is_gone: true once the client has been forgotten, or if it was never kept.
    """

    def __init__(self, context: CallContext, transactions: OpenTransactions) -> None:
        self.client_id = context.client_id
        self.key = _key_of(context)
        self.remote_address = context.peer
        self.settings: Settings | None = None
        self.stream: TelemetryStream | None = None
        self.last_call = 0.0
        self.is_gone = False
        self._transactions = transactions
        self._nonces = itertools.count()
        # Requests under way, whose answers come as commands of the client.
        self._asked: dict[str, asyncio.Future[TelemetryCommand]] = {}

    def called(self, context: CallContext) -> None:
        """Note that the client is alive, and where."""
        self.remote_address = context.peer
        self.last_call = asyncio.get_running_loop().time()

    def send_oneway(self, command: Command) -> bool:
        """Ask the client for the outcome of a transaction; return false without a stream, or for another request."""
        if self.stream is None or command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return False
        header = command.header
        assert isinstance(header, CheckTransactionStateRequestHeader)
        half = decode_record(command.body)
        if half.topic != half.get_property(PROPERTY_PRODUCER_GROUP):
            # The producer group of a client of gRPC is a topic that it may send to. A producer of remoting may have a
            # group of that name and other topics, whose transactions this client could neither read nor end.
            return False
        transaction_id = header.transaction_id or half.uniq_key or half.offset_msg_id
        place = HalfMessage(header.broker_name or "", header.tran_state_table_offset, header.commit_log_offset)
        self._transactions.add(half.topic, transaction_id, place)
        message = incoming(half, Resource(name=half.topic))
        question = RecoverOrphanedTransactionCommand(message=message, transaction_id=transaction_id)
        self.stream.send(TelemetryCommand(recover_orphaned_transaction_command=question))
        return True

    async def invoke(self, command: Command, timeout_s: float) -> Command:
        """Pass a broker's request on to the client and return its answer.

        Raises:
            RemotingSendError: It has no stream, or closed it.
            RemotingTimeoutError: It did not answer in time.
        """
        match command.code:
            case RequestCode.CONSUME_MESSAGE_DIRECTLY:
                record = decode_record(command.body)
                message = incoming(record, Resource(name=record.topic))
                nonce = str(next(self._nonces))
                question = TelemetryCommand(verify_message_command=VerifyMessageCommand(nonce=nonce, message=message))
                return _verified(await self._ask(nonce, question, timeout_s))
            case RequestCode.GET_CONSUMER_RUNNING_INFO:
                header = command.header
                assert isinstance(header, GetConsumerRunningInfoRequestHeader)
                info = ConsumerRunningInfo(subscription_set=_subscriptions(self.settings))
                if not header.jstack_enable:
                    return response(body=info.encode())
                nonce = str(next(self._nonces))
                print_stack = PrintThreadStackTraceCommand(nonce=nonce)
                question = TelemetryCommand(print_thread_stack_trace_command=print_stack)
                return _with_stack_trace(info, await self._ask(nonce, question, timeout_s))
        remark = f"request code {command.code} means nothing to a client of gRPC; {shown(self.client_id)} is one"
        return response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)

    async def _ask(self, nonce: str, question: TelemetryCommand, timeout_s: float) -> TelemetryCommand:
        if self.stream is None:
            raise RemotingSendError(f"client {shown(self.client_id)} has no telemetry stream; ask again later")
        answer: asyncio.Future[TelemetryCommand] = asyncio.get_running_loop().create_future()
        self._asked[nonce] = answer
        self.stream.send(question)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            text = f"client {shown(self.client_id)} did not answer within {timeout_s:g} s"
            raise RemotingTimeoutError(text) from None
        finally:
            self._asked.pop(nonce, None)

    def answered(self, nonce: str, answer: TelemetryCommand) -> None:
        """Take the answer to a request; one that came too late is ignored."""
        asked = self._asked.get(nonce)
        if asked is not None and not asked.done():
            asked.set_result(answer)

    def disconnected(self) -> None:
        """Note that the stream is closed: no answer will come."""
        self.stream = None
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(RemotingSendError(f"client {shown(self.client_id)} closed its telemetry stream"))


def _verified(answer: TelemetryCommand) -> Command:
    """Return the answer to CONSUME_MESSAGE_DIRECTLY."""
    result = _CONSUME_RESULTS.get(answer.status.code)
    body = ConsumeMessageDirectlyResult(consume_result=result, remark=answer.status.message or "from gRPC client")
    return response(body=body.encode())


def _with_stack_trace(info: ConsumerRunningInfo, answer: TelemetryCommand) -> Command:
    """Return the answer to GET_CONSUMER_RUNNING_INFO."""
    if answer.status.code == Code.OK:
        info.jstack = answer.thread_stack_trace.thread_stack_trace
        return response(body=info.encode())
    is_refused = answer.status.code == Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED
    code = ResponseCode.NO_PERMISSION if is_refused else ResponseCode.SYSTEM_ERROR
    return response(code, f"the client printed no stack trace: {answer.status.message}")


def _key_of(context: CallContext) -> tuple[str, str]:
    return context.user, context.client_id


class Clients:
    """Clients by user and id; settings and commands of each.

    Args:
        brokers: the brokers that clients are registered with.
        transactions: open transactions.
        config: what settings of clients are answered with.
        on_leave: called with each client that is forgotten, while brokers still know it.
    """

    def __init__(
        self,
        brokers: ServiceManager,
        transactions: OpenTransactions,
        config: ProxyConfig,
        on_leave: Callable[[ProxyClient], None],
    ) -> None:
        self._brokers = brokers
        self._config = config
        self._transactions = transactions
        self._on_leave = on_leave
        self._clients: dict[tuple[str, str], ProxyClient] = {}
        self._events = EventLog(log)

    def of(self, context: CallContext) -> ProxyClient:
        """Return the client of a call, known or not.

        Raises:
            StatusError: TOO_MANY_REQUESTS, as there are too many clients.
        """
        client = self._clients.get(_key_of(context))
        if client is None:
            if len(self._clients) >= _MOST_CLIENTS:
                remark = f"this server has {_MOST_CLIENTS:,} clients already; connect to another one"
                raise StatusError(Code.TOO_MANY_REQUESTS, remark)
            client = self._clients[_key_of(context)] = ProxyClient(context, self._transactions)
        client.called(context)
        return client

    def client_for_return(self, context: CallContext) -> ProxyClient:
        """Return the client of a call whose messages return to their group, known or not; it is not kept."""
        client = self._clients.get(_key_of(context))
        if client is None:
            client = ProxyClient(context, self._transactions)
            client.is_gone = True
        return client

    def forget_silent(self, before: float) -> None:
        """Forget clients without a stream whose latest call was before a time of the event loop."""
        for client in list(self._clients.values()):
            if client.stream is None and client.last_call < before:
                self._forget(client, "it is silent (grpcClientIdleTimeMills)")

    def forget_all(self) -> None:
        """Forget all clients, as at a stop."""
        for client in list(self._clients.values()):
            self._forget(client, "the port stops")

    def _forget(self, client: ProxyClient, reason: str) -> None:
        if client.settings is not None:
            self._events.add("client %s at %s has left: %s", shown(client.client_id), client.remote_address, reason)
        del self._clients[client.key]
        client.is_gone = True
        client.disconnected()
        self._on_leave(client)

    # -- methods of the service

    async def heartbeat(self, heartbeat: HeartbeatRequest, context: CallContext) -> HeartbeatResponse:
        """Register the client with the brokers again, by its settings.

        Raises:
            StatusError: UNRECOGNIZED_CLIENT_TYPE without settings; ILLEGAL_CONSUMER_GROUP for another group than
                theirs; FORBIDDEN if the user has lost what they need, which ends the client.
        """
        client, settings = self._known(context)
        if settings.HasField("subscription"):
            check_group(heartbeat.group)
            own = settings.subscription.group.name
            if heartbeat.group.name != own:
                remark = (
                    f"the heartbeat is for group {shown(heartbeat.group.name)}, and the settings of the client name "
                    f"{shown(own)}; send settings with the other group by Telemetry first"
                )
                raise StatusError(Code.ILLEGAL_CONSUMER_GROUP, remark)
        # The call was checked for what it names. What it registers are the settings.
        if context.refusal is not None:
            refusal = context.refusal(TelemetryCommand(settings=settings))
            if refusal is not None:
                self._forget(client, "its user has lost a right")
                raise refusal
        client.called(context)
        await succeeded(self._brokers.invoke(client, "", _heartbeat(client.client_id, settings)))
        return HeartbeatResponse(status=OK)

    async def notify_client_termination(
        self, termination: NotifyClientTerminationRequest, context: CallContext
    ) -> NotifyClientTerminationResponse:
        """Forget the client, here and at the brokers."""
        client, settings = self._known(context)
        try:
            await self._leave(client, _groups(settings))
        finally:
            if not client.is_gone:
                self._forget(client, "it says so")
        return NotifyClientTerminationResponse(status=OK)

    async def _leave(self, client: ProxyClient, groups: Iterable[tuple[str | None, str | None]]) -> None:
        for producer_group, consumer_group in groups:
            header = UnregisterClientRequestHeader(client.client_id, producer_group, consumer_group)
            await succeeded(self._brokers.invoke(client, "", request(RequestCode.UNREGISTER_CLIENT, header)))

    async def telemetry(self, command: TelemetryCommand, context: CallContext, stream: TelemetryStream) -> None:
        """Take a command of a client: its settings, which are answered with those of the server, or an answer."""
        match command.WhichOneof("command"):
            case "settings":
                await self._set(command.settings, context, stream)
            case "thread_stack_trace":
                self.of(context).answered(command.thread_stack_trace.nonce, command)
            case "verify_message_result":
                self.of(context).answered(command.verify_message_result.nonce, command)

    async def _set(self, settings: Settings, context: CallContext, stream: TelemetryStream) -> None:
        if (size := settings.ByteSize()) > _MAX_SETTINGS:
            raise StatusError(Code.BAD_REQUEST, f"settings of {size:,} bytes exceed the limit of {_MAX_SETTINGS:,}")
        merged = await self._merged(settings)
        heartbeat = _heartbeat(context.client_id, settings)
        client = self.of(context)
        if settings != client.settings:
            what = "joined" if client.settings is None else "changed its settings"
            role = _described(settings, context)
            self._events.add("client %s at %s has %s: %s", shown(client.client_id), context.peer, what, role)
        older, client.settings, client.stream = client.settings, settings, stream
        if older is not None:
            # The stream needs the rights of the new settings alone, so the client may not stay where the old ones were.
            kept = _groups(settings)
            await self._leave(client, [group for group in _groups(older) if group not in kept])
        await succeeded(self._brokers.invoke(client, "", heartbeat))
        stream.send(TelemetryCommand(status=OK, settings=merged))

    def telemetry_closed(self, context: CallContext, stream: TelemetryStream) -> None:
        """Forget the stream of a client, which may have opened another one since."""
        client = self._clients.get(_key_of(context))
        if client is not None and client.stream is stream:
            client.disconnected()

    def telemetry_refused(self, context: CallContext, stream: TelemetryStream) -> None:
        """Forget a client whose stream ends since its user has lost a right, here and at the brokers."""
        client = self._clients.get(_key_of(context))
        if client is not None and client.stream is stream:
            self._forget(client, "its user has lost a right")

    def _known(self, context: CallContext) -> tuple[ProxyClient, Settings]:
        client = self._clients.get(_key_of(context))
        if client is None or client.settings is None:
            remark = "cannot find client settings for this client; send them by Telemetry first"
            raise StatusError(Code.UNRECOGNIZED_CLIENT_TYPE, remark)
        return client, client.settings

    async def _merged(self, settings: Settings) -> Settings:
        """Return a client's settings with what the server decides."""
        merged = Settings()
        merged.CopyFrom(settings)
        merged.metric.CopyFrom(Metric(on=False))
        policy, config = merged.backoff_policy, self._config
        if settings.HasField("publishing"):
            for topic in settings.publishing.topics:
                check_topic(topic)
            merged.publishing.max_body_size = config.max_message_size
            merged.publishing.validate_message_type = config.enable_topic_message_type_check
            policy.max_attempts = config.grpc_client_producer_max_attempts
            policy.exponential_backoff.initial.CopyFrom(to_duration(config.grpc_client_producer_backoff_initial_millis))
            policy.exponential_backoff.max.CopyFrom(to_duration(config.grpc_client_producer_backoff_max_millis))
            policy.exponential_backoff.multiplier = float(config.grpc_client_producer_backoff_multiplier)
        elif settings.HasField("subscription"):
            group = await self._brokers.subscription_group_config(check_group(settings.subscription.group))
            subscription = merged.subscription
            subscription.fifo = group.consume_message_orderly
            subscription.receive_batch_size = config.grpc_client_consumer_long_polling_batch_size
            longest_poll = to_duration(config.grpc_client_consumer_max_long_polling_timeout_millis)
            subscription.long_polling_timeout.CopyFrom(longest_poll)
            policy.max_attempts = max_attempts(group)
            match retry_delays(group):
                case ExponentialRetryPolicy() as growing:
                    backoff = ExponentialBackoff(
                        initial=to_duration(growing.initial),
                        max=to_duration(growing.max),
                        multiplier=float(growing.multiplier),
                    )
                    policy.exponential_backoff.CopyFrom(backoff)
                case delays_ms:
                    delays = [to_duration(ms) for ms in delays_ms]
                    policy.customized_backoff.CopyFrom(CustomizedBackoff(next=delays))
        else:
            raise StatusError(Code.BAD_REQUEST, "there is no publishing or subscription data in settings")
        return merged


def _heartbeat(client_id: str, settings: Settings) -> Command:
    """Return the heartbeat of a client with these settings."""
    # Any producer of the topic may be asked for the outcome of a transaction, so that the topic is the group.
    producers = [ProducerData(name) for name in _topics(settings)]
    consumers = []
    if settings.HasField("subscription"):
        kind = _CONSUMERS.get(settings.client_type)
        if kind is None:
            number = settings.client_type
            name = ClientType.Name(number) if number in ClientType.values() else f"client type {number}"
            raise StatusError(Code.UNRECOGNIZED_CLIENT_TYPE, f"{name} cannot subscribe; be a push or simple consumer")
        group = settings.subscription.group.name
        start = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        consumers = [ConsumerData(group, kind, MessageModel.CLUSTERING, start, _subscriptions(settings))]
    body = HeartbeatData(client_id, producers, consumers).encode()
    return request(RequestCode.HEART_BEAT, body=body)


def _described(settings: Settings, context: CallContext) -> str:
    """Return what a client is, for the log."""
    if settings.HasField("subscription"):
        kind = ClientType.Name(settings.client_type).lower().replace("_", " ")
        topics = [each.topic.name for each in settings.subscription.subscriptions]
        role = f"{kind} of group {settings.subscription.group.name}, topics"
    else:
        topics, role = _topics(settings), "producer of topics"
    more = f" and {len(topics) - _MOST_LOGGED} others" if len(topics) > _MOST_LOGGED else ""
    names = ", ".join(sorted(topics)[:_MOST_LOGGED])
    return f"{role} {names}{more}, by {shown(context.language)} {shown(context.client_version)}"


def _topics(settings: Settings) -> list[str]:
    return [topic.name for topic in settings.publishing.topics]


def _groups(settings: Settings) -> list[tuple[str | None, str | None]]:
    """Return the groups that settings register, each as a producer group or a consumer group."""
    if settings.HasField("subscription"):
        return [(None, settings.subscription.group.name)]
    return [(name, None) for name in _topics(settings)]


def _subscriptions(settings: Settings | None) -> list[SubscriptionData]:
    if settings is None:
        return []
    return [subscription(check_topic(each.topic), each.expression) for each in settings.subscription.subscriptions]


def subscription(topic: str, expression: FilterExpression) -> SubscriptionData:
    """Return a subscription of remoting; SQL has no tags.

    Raises:
        StatusError: ILLEGAL_FILTER_EXPRESSION.
    """
    text = expression.expression
    if expression.type == FilterType.SQL:
        if not text:
            raise StatusError(
                Code.ILLEGAL_FILTER_EXPRESSION, "Expression can't be null! SQL92; write one, such as n > 5"
            )
        return SubscriptionData(topic, text, expression_type="SQL92")
    if text in ("", "*"):
        return SubscriptionData(topic, "*")
    tags = [tag for part in text.split("||") if (tag := part.strip())]
    if not tags:
        remark = f"subString split error: {shown(text)} names no tag; write tags such as a || b, or *"
        raise StatusError(Code.ILLEGAL_FILTER_EXPRESSION, remark)
    return SubscriptionData(topic, text, tags_set=tags, code_set=[java_hash(tag) for tag in tags])


def max_attempts(group: SubscriptionGroupConfig) -> int:
    """Return how often a message is delivered to a group before it is a dead letter."""
    return group.retry_max_times + 1


def retry_delays(group: SubscriptionGroupConfig) -> ExponentialRetryPolicy | list[int]:
    """Return the delays of a group's retries: growing ones, or a list in ms.

    A policy without delays has RocketMQ's: that is what its Java object holds when JSON names none. SDKs fail at an
    empty list, which Apache's proxy would pass on.
    """
    policy = group.group_retry_policy
    if policy.type == GroupRetryPolicyType.EXPONENTIAL:
        return policy.exponential_retry_policy or ExponentialRetryPolicy()
    own = policy.customized_retry_policy
    return own.next if own and own.next else [seconds * 1000 for seconds in _RETRY_DELAYS_S]
