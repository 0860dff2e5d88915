"""Methods of the service: a request and its context in, a reply out (GrpcMessagingApplication).

A method that the class lacks is answered as unimplemented. A refusal is raised, as ``StatusError`` or as the broker's
``BrokerResponseError``, and answered in the body of the reply.
"""

import asyncio
import logging
from typing import Protocol

from google.protobuf.duration_pb2 import Duration

from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.message.topic_validator import (
    is_system_group,
    is_system_topic,
    validate_group,
    validate_topic,
)
from rocketbroker.codec.remoting.bodies.client import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, QueueData
from rocketbroker.codec.remoting.bodies.topic_config import (
    PERM_READ,
    PERM_WRITE,
    ExponentialRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)
from rocketbroker.codec.remoting.headers.admin import UnregisterClientRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, RemotingTimeoutError
from rocketbroker.proxy.call_context import CallContext, StatusError
from rocketbroker.proxy.messaging_pb2 import (
    Broker,
    ClientType,
    Code,
    CustomizedBackoff,
    Endpoints,
    ExponentialBackoff,
    FilterType,
    HeartbeatRequest,
    HeartbeatResponse,
    MessageQueue,
    MessageType,
    Metric,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    Permission,
    QueryRouteRequest,
    QueryRouteResponse,
    Resource,
    Settings,
    Status,
    SubscriptionEntry,
    TelemetryCommand,
)
from rocketbroker.proxy.service_manager import ServiceManager

log = logging.getLogger(__name__)

OK = Status(code=Code.OK, message="OK")
MAX_BODY_SIZE = 4 * 1024 * 1024
_MAX_SETTINGS = 256 * 1024
_PRODUCER_ATTEMPTS = 3
_RECEIVE_BATCH_SIZE = 32
_LONG_POLLING_S = 20
# Delays of CustomizedRetryPolicy in seconds, where a group has none of its own.
_RETRY_DELAYS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
_CODES: dict[int, Code] = {
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
}
_MESSAGE_TYPES = {
    "NORMAL": MessageType.NORMAL,
    "FIFO": MessageType.FIFO,
    "DELAY": MessageType.DELAY,
    "TRANSACTION": MessageType.TRANSACTION,
}
_CONSUMERS = {
    ClientType.PUSH_CONSUMER: ConsumeType.CONSUME_PASSIVELY,
    ClientType.SIMPLE_CONSUMER: ConsumeType.CONSUME_ACTIVELY,
}


def status_of(error: Exception) -> Status:
    """Return the status that answers an error; log an unexpected one with its traceback."""
    match error:
        case StatusError():
            return Status(code=error.code, message=error.message)
        case BrokerResponseError():
            return Status(code=_CODES.get(error.code, Code.INTERNAL_SERVER_ERROR), message=error.remark)
        case RemotingTimeoutError():
            return Status(code=Code.PROXY_TIMEOUT, message=str(error))
    log.error("a call failed", exc_info=error)
    return Status(code=Code.INTERNAL_SERVER_ERROR, message=f"{type(error).__name__}: {error}")


def check_topic(topic: Resource) -> str:
    """Return the name of a topic that clients may use.

    Raises:
        StatusError: ILLEGAL_TOPIC.
    """
    result = validate_topic(topic.name)
    if not result.valid:
        raise StatusError(Code.ILLEGAL_TOPIC, result.remark)
    if is_system_topic(topic.name):
        raise StatusError(Code.ILLEGAL_TOPIC, f"cannot access system topic {topic.name}; use a topic of your own")
    return topic.name


def check_group(group: Resource) -> str:
    """Return the name of a consumer group that clients may use.

    Raises:
        StatusError: ILLEGAL_CONSUMER_GROUP.
    """
    result = validate_group(group.name)
    if not result.valid:
        raise StatusError(Code.ILLEGAL_CONSUMER_GROUP, result.remark)
    if is_system_group(group.name):
        remark = f"cannot use system consumer group {group.name}; use a group of your own"
        raise StatusError(Code.ILLEGAL_CONSUMER_GROUP, remark)
    return group.name


class TelemetryStream(Protocol):
    """Way of commands to a client."""

    def send(self, command: TelemetryCommand) -> None: ...


class ProxyClient:
    """A client with settings: what the brokers know as a connection.

    Attributes:
        client_id: id of the client.
        remote_address: address of its latest call.
        settings: as the client sent them.
        stream: its open telemetry stream.
        last_call: time of the event loop of its latest call that names it as alive.
    """

    def __init__(self, context: CallContext) -> None:
        self.client_id = context.client_id
        self.remote_address = context.peer
        self.settings = Settings()
        self.stream: TelemetryStream | None = None
        self.last_call = 0.0

    def called(self, context: CallContext) -> None:
        """Note that the client is alive, and where."""
        self.remote_address = context.peer
        self.last_call = asyncio.get_running_loop().time()

    def send_oneway(self, command: Command) -> bool:
        """Drop a broker's request: none of them is passed on yet."""
        return False


class MessagingService:
    """Answers of calls from clients and brokers.

    Args:
        brokers: brokers and routes.
        endpoints: address of this front, which routes have for each broker.
    """

    def __init__(self, brokers: ServiceManager, endpoints: Endpoints) -> None:
        self._brokers = brokers
        self._endpoints = endpoints
        self._clients: dict[str, ProxyClient] = {}

    # -- routes

    async def query_route(self, query: QueryRouteRequest, context: CallContext) -> QueryRouteResponse:
        """Return the queues of a topic, each at this front."""
        topic = check_topic(query.topic)
        route = await self._brokers.topic_route(topic)
        types = _message_types((await self._brokers.topic_config(topic)).attributes.get("message.type", ""))
        masters = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
        queues = [
            MessageQueue(
                topic=query.topic,
                id=queue_id,
                permission=permission,
                broker=Broker(name=data.broker_name, id=MASTER_ID, endpoints=self._endpoints),
                accept_message_types=types,
            )
            for data in route.queue_datas
            if data.broker_name in masters
            for queue_id, permission in enumerate(_permissions(data))
        ]
        return QueryRouteResponse(status=OK, message_queues=queues)

    # -- clients

    async def heartbeat(self, heartbeat: HeartbeatRequest, context: CallContext) -> HeartbeatResponse:
        """Register the client with the brokers again."""
        client = self._known(context)
        client.called(context)
        if client.settings.client_type in _CONSUMERS:
            check_group(heartbeat.group)
        await self._invoke_all(client, _heartbeat(client.client_id, client.settings))
        return HeartbeatResponse(status=OK)

    async def notify_client_termination(
        self, termination: NotifyClientTerminationRequest, context: CallContext
    ) -> NotifyClientTerminationResponse:
        """Forget the client, here and at the brokers."""
        client = self._known(context)
        del self._clients[client.client_id]
        settings = client.settings
        groups = [UnregisterClientRequestHeader(client.client_id, producer_group=name) for name in _topics(settings)]
        if settings.HasField("subscription"):
            name = settings.subscription.group.name
            groups = [UnregisterClientRequestHeader(client.client_id, consumer_group=name)]
        for header in groups:
            await self._invoke_all(client, request(RequestCode.UNREGISTER_CLIENT, header))
        return NotifyClientTerminationResponse(status=OK)

    async def telemetry(self, command: TelemetryCommand, context: CallContext, stream: TelemetryStream) -> None:
        """Take a command of a client: settings are registered and answered with those of the server."""
        if command.WhichOneof("command") != "settings":
            return
        settings = command.settings
        if (size := settings.ByteSize()) > _MAX_SETTINGS:
            raise StatusError(Code.BAD_REQUEST, f"settings of {size:,} bytes exceed the limit of {_MAX_SETTINGS:,}")
        merged = await self._merged(settings)
        heartbeat = _heartbeat(context.client_id, settings)
        client = self._clients.get(context.client_id)
        if client is None:
            client = self._clients[context.client_id] = ProxyClient(context)
        client.settings, client.stream = settings, stream
        client.called(context)
        await self._invoke_all(client, heartbeat)
        stream.send(TelemetryCommand(status=OK, settings=merged))

    def telemetry_closed(self, context: CallContext, stream: TelemetryStream) -> None:
        """Forget the stream of a client, which may have opened another one since."""
        client = self._clients.get(context.client_id)
        if client is not None and client.stream is stream:
            client.stream = None

    def forget_silent(self, before: float) -> None:
        """Forget clients without a stream whose latest call was before a time of the event loop."""
        for client in list(self._clients.values()):
            if client.stream is None and client.last_call < before:
                del self._clients[client.client_id]

    def _known(self, context: CallContext) -> ProxyClient:
        client = self._clients.get(context.client_id)
        if client is None:
            remark = "cannot find client settings for this client; send them by Telemetry first"
            raise StatusError(Code.UNRECOGNIZED_CLIENT_TYPE, remark)
        return client

    async def _merged(self, settings: Settings) -> Settings:
        """Return a client's settings with what the server decides."""
        merged = Settings()
        merged.CopyFrom(settings)
        merged.metric.CopyFrom(Metric(on=False))
        policy = merged.backoff_policy
        if settings.HasField("publishing"):
            for topic in settings.publishing.topics:
                check_topic(topic)
            merged.publishing.max_body_size = MAX_BODY_SIZE
            merged.publishing.validate_message_type = True
            policy.max_attempts = _PRODUCER_ATTEMPTS
            backoff = ExponentialBackoff(initial=_duration(10), max=_duration(1000), multiplier=2.0)
            policy.exponential_backoff.CopyFrom(backoff)
        elif settings.HasField("subscription"):
            group = await self._brokers.subscription_group_config(check_group(settings.subscription.group))
            subscription = merged.subscription
            subscription.fifo = group.consume_message_orderly
            subscription.receive_batch_size = _RECEIVE_BATCH_SIZE
            subscription.long_polling_timeout.seconds = _LONG_POLLING_S
            policy.max_attempts = group.retry_max_times + 1
            backoff_of = _backoff(group)
            if isinstance(backoff_of, ExponentialBackoff):
                policy.exponential_backoff.CopyFrom(backoff_of)
            else:
                policy.customized_backoff.CopyFrom(backoff_of)
        else:
            raise StatusError(Code.BAD_REQUEST, "there is no publishing or subscription data in settings")
        return merged

    async def _invoke_all(self, client: ProxyClient, command: Command) -> None:
        answer = self._brokers.invoke(client, "", command)
        if not isinstance(answer, RemotingCommand):
            answer = await answer
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerResponseError(answer.code, answer.remark or "")


def _heartbeat(client_id: str, settings: Settings) -> Command:
    """Return the heartbeat of a client with these settings."""
    # Any producer of the topic may be asked for the outcome of a transaction, so that the topic is the group.
    producers = [ProducerData(name) for name in _topics(settings)]
    consumers = []
    if settings.HasField("subscription"):
        kind = _CONSUMERS.get(settings.client_type)
        if kind is None:
            name = ClientType.Name(settings.client_type)
            raise StatusError(Code.UNRECOGNIZED_CLIENT_TYPE, f"{name} cannot subscribe; be a push or simple consumer")
        subscription = settings.subscription
        entries = [_subscription(entry) for entry in subscription.subscriptions]
        start = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        consumers = [ConsumerData(subscription.group.name, kind, MessageModel.CLUSTERING, start, entries)]
    body = HeartbeatData(client_id, producers, consumers).encode()
    return request(RequestCode.HEART_BEAT, body=body)


def _topics(settings: Settings) -> list[str]:
    return [topic.name for topic in settings.publishing.topics]


def _message_types(name: str) -> list[MessageType]:
    """Return what a topic accepts by its attribute ``message.type``; NORMAL without one."""
    if name == "MIXED":
        return list(_MESSAGE_TYPES.values())
    return [_MESSAGE_TYPES.get(name or "NORMAL", MessageType.MESSAGE_TYPE_UNSPECIFIED)]


def _permissions(data: QueueData) -> list[Permission]:
    """Return a permission for each queue: those that are only read, only written, both, or none, in this order."""
    reads = data.read_queue_nums if data.perm & PERM_READ else 0
    writes = data.write_queue_nums if data.perm & PERM_WRITE else 0
    both = min(reads, writes)
    if not data.perm & (PERM_READ | PERM_WRITE):
        return [Permission.NONE] * max(1, data.read_queue_nums, data.write_queue_nums)
    return [Permission.READ] * (reads - both) + [Permission.WRITE] * (writes - both) + [Permission.READ_WRITE] * both


def _subscription(entry: SubscriptionEntry) -> SubscriptionData:
    """Return a subscription of remoting; SQL has no tags."""
    topic, text = check_topic(entry.topic), entry.expression.expression
    if entry.expression.type == FilterType.SQL:
        return SubscriptionData(topic, text, expression_type="SQL92")
    tags = [tag for part in text.split("||") if (tag := part.strip())] if text not in ("", "*") else []
    return SubscriptionData(topic, text or "*", tags_set=tags, code_set=[java_hash(tag) for tag in tags])


def _backoff(group: SubscriptionGroupConfig) -> ExponentialBackoff | CustomizedBackoff:
    policy = group.group_retry_policy
    if policy.type == GroupRetryPolicyType.EXPONENTIAL:
        delays = policy.exponential_retry_policy or ExponentialRetryPolicy()
        return ExponentialBackoff(
            initial=_duration(delays.initial), max=_duration(delays.max), multiplier=float(delays.multiplier)
        )
    own = policy.customized_retry_policy
    return CustomizedBackoff(
        next=[_duration(ms) for ms in (own.next if own else [seconds * 1000 for seconds in _RETRY_DELAYS_S])]
    )


def _duration(ms: int) -> Duration:
    return Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
