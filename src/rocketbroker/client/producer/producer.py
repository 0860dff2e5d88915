"""Producer of messages (org.apache.rocketmq.client.producer.DefaultMQProducer)."""

import asyncio
import reprlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, TypedDict, Unpack

import msgspec

from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.client_instance import ClientInstance, GroupMember
from rocketbroker.client.core.client_remoting_processor import (
    Question,
    question_properties,
    reply_properties,
    reply_topic,
)
from rocketbroker.client.core.errors import InvalidMessageError, RequestTimeoutError
from rocketbroker.client.core.message import (
    MAX_MESSAGE_SIZE,
    Message,
    SendMessageHook,
    SendResult,
    check_group,
    check_message,
)
from rocketbroker.client.core.options import Count, CountFrom0, Seconds, checked
from rocketbroker.client.core.requests import answer_header, client_request
from rocketbroker.client.producer.message_sender import (
    BackPressure,
    MessageSender,
    MQFaultStrategy,
    QueueSelector,
    select_by_hash,
    trace_dispatcher,
    unique_ids,
)
from rocketbroker.client.producer.outgoing import (
    Compression,
    CompressionType,
    Outgoing,
    prepare_batches,
    prepare_message,
)
from rocketbroker.codec.message.message_const import PROPERTY_RETRY_TOPIC
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.message_id import decode_recall_handle
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.headers.message import RecallMessageRequestHeader, RecallMessageResponseHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.lifecycle import stop_all


class ProducerOptions(TypedDict, total=False):
    """Settings of Producer and TransactionProducer, with their defaults in ProducerSettings.

    Args:
        send_timeout_s: time limit of a send with its retries, by default 3.
        retry_times_when_send_failed: further tries of a failed send, on another broker where there is one; 2.
        send_max_timeout_per_request_s: time limit of each try (sendMsgMaxTimeoutPerRequest); None, the default, gives a
            try half of the time that is left where another broker has the topic, so that a silent one leaves time.
        retry_another_broker_when_not_store_ok: count a result other than SEND_OK as failed; off.
        send_latency_enable: avoid a broker that failed or was slow for a while (sendLatencyFaultEnable); off.
        compress_msg_body_over_howmuch: compress bodies of so many bytes or more; 4096.
        compress_type: compression of bodies; ZLIB.
        compress_level: its level; 5.
        max_message_size: limit of a body, and of a batch, in bytes; 4 MiB.
        back_pressure_sends: sends in flight beyond which others wait; 10,000.
        back_pressure_bytes: bytes of bodies in flight beyond which other sends wait; 100 MiB.
        hooks: called around each try of a send.
    """

    send_timeout_s: Seconds
    retry_times_when_send_failed: CountFrom0
    send_max_timeout_per_request_s: Seconds | None
    retry_another_broker_when_not_store_ok: bool
    send_latency_enable: bool
    compress_msg_body_over_howmuch: CountFrom0
    compress_type: CompressionType
    compress_level: Annotated[int, msgspec.Meta(ge=0, le=9)]
    max_message_size: Count
    back_pressure_sends: Count
    back_pressure_bytes: Count
    hooks: Sequence[SendMessageHook]


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``ProducerOptions`` with their defaults, checked by the constructors that take them."""

    send_timeout_s: float = 3.0
    retry_times_when_send_failed: int = 2
    send_max_timeout_per_request_s: float | None = None
    retry_another_broker_when_not_store_ok: bool = False
    send_latency_enable: bool = False
    compress_msg_body_over_howmuch: int = 4096
    compress_type: CompressionType = CompressionType.ZLIB
    compress_level: int = 5
    max_message_size: int = MAX_MESSAGE_SIZE
    back_pressure_sends: int = 10_000
    back_pressure_bytes: int = 100 * 1024 * 1024
    hooks: Sequence[SendMessageHook] = ()


_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class Producer(GroupMember):
    """Sends messages to the brokers that have their topic.

    ``async with Producer("group", "127.0.0.1:9876") as producer: await producer.send(Message("topic", b"body"))``

    Args:
        group: the producer group.
        config: ``host:port`` of the name servers, joined by ``;``, or a ClientConfig; not needed with ``client``.
        client: an instance to share with others, which its owner starts and stops.
        options: the settings of ``ProducerOptions``.
    """

    kind = "producer"

    @checked
    def __init__(
        self,
        group: str,
        config: str | ClientConfig = "",
        *,
        client: ClientInstance | None = None,
        clock: Clock | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(group, config, client)
        settings = ProducerSettings(**options)
        self._send_timeout_s = settings.send_timeout_s
        self._compression = Compression(
            settings.compress_msg_body_over_howmuch, settings.compress_type, settings.compress_level
        )
        self._max_message_size = settings.max_message_size
        clock = clock or SystemClock()
        self._new_unique_id = unique_ids(self._client, clock)
        self._trace = trace_dispatcher(self._client, self.group, clock)
        self._sender = MessageSender(
            self._client,
            self.group,
            clock,
            tries=1 + settings.retry_times_when_send_failed,
            max_try_s=settings.send_max_timeout_per_request_s,
            accepts_any_status=not settings.retry_another_broker_when_not_store_ok,
            strategy=MQFaultStrategy(clock.monotonic, send_latency_enable=settings.send_latency_enable),
            pressure=BackPressure(settings.back_pressure_sends, settings.back_pressure_bytes),
            hooks=settings.hooks if self._trace is None else (*settings.hooks, self._trace),
        )

    def _join(self) -> None:
        self._client.heartbeats.register_producer(self.group)
        if self._trace is not None:
            self._trace.start()

    async def _leave(self) -> None:
        await stop_all(
            None if self._trace is None else self._trace.stop,
            lambda: self._client.heartbeats.unregister_producer(self.group),
        )

    async def fetch_publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that a topic can be written to, in order (fetchPublishMessageQueues).

        Raises:
            ClientStateError: the producer is not started, or is closed.
            TopicRouteError, NameServerError: no route for the topic.
        """
        self._check_started()
        return (await self._client.routes.publish_route(self._client.namespace.wrap(topic))).publish_queues

    async def send(
        self, message: Message, queue: MessageQueue | QueueSelector | None = None, *, timeout_s: float | None = None
    ) -> SendResult:
        """Send a message and wait until the broker has it.

        Args:
            message: the message. Its ``sharding_key`` chooses the queue unless ``queue`` does.
            queue: the queue, or a function that chooses one of the topic's queues. A send to a chosen queue is tried
                once. Others go to the queues in turn, and are tried again when they fail: in rare cases a message is
                stored twice.
            timeout_s: time limit instead of ``send_timeout_s``: the route, the connect and all tries share it.

        Raises:
            InvalidMessageError: The message cannot be sent like this.
            TopicRouteError: The topic does not exist and cannot be created.
            SendFailedError: All tries failed.
            BrokerResponseError: The broker refused in a way that no retry mends.
            RemotingError: The only try, to a given queue, failed; too many sends are in flight; or the time limit
                passed before the first try.
        """
        outgoing = self._prepare(message)
        return await self._sender.send(outgoing, queue or _by_key(message), timeout_s or self._send_timeout_s)

    @checked
    async def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None = None, *, timeout_s: Seconds | None = None
    ) -> list[SendResult]:
        """Send messages of one topic in few requests, each of up to ``max_message_size`` bytes.

        The requests are sent one after the other, each within the time limit. When one fails, those before it are
        stored.

        Returns:
            The result of each request: its ``msg_id`` has the ids of its messages, joined by commas.

        Raises:
            InvalidMessageError: The messages cannot be one batch.
            ClientError, BrokerResponseError, RemotingError: As in ``send``.
        """
        self._check_started()
        messages = [self._named(message) for message in messages]
        for message in messages:
            check_message(message, self._max_message_size)
        batches = prepare_batches(messages, self._new_unique_id, self._max_message_size)
        return [await self._sender.send(batch, queue, timeout_s or self._send_timeout_s) for batch in batches]

    async def send_oneway(self, message: Message, queue: MessageQueue | QueueSelector | None = None) -> None:
        """Send a message without waiting for an answer; errors as in ``send`` before it leaves.

        Route and connect may take ``send_timeout_s``.
        """
        await self._sender.send_oneway(self._prepare(message), queue or _by_key(message), self._send_timeout_s)

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Cancel a message with ``delay_time_ms`` or ``deliver_time_ms`` before its delivery; return its id.

        Args:
            topic: the topic of the message.
            recall_handle: the one of its ``SendResult``.

        Raises:
            CodecError: The handle is invalid.
            BrokerResponseError: The broker refused, for example because the message is due.
            BrokerNotFoundError, TopicRouteError, RemotingError: Its broker cannot be reached.
        """
        self._check_started()
        broker_name = decode_recall_handle(recall_handle).broker_name
        topic = self._client.namespace.wrap(topic)
        header = RecallMessageRequestHeader(topic, recall_handle, self.group)
        command = client_request(RequestCode.RECALL_MESSAGE, header)
        answer = await self._client.invoke_at_broker(MessageQueue(topic, broker_name, 0), command, self._send_timeout_s)
        return answer_header(answer, RecallMessageResponseHeader).msg_id

    @checked
    async def request(
        self, message: Message, queue: MessageQueue | QueueSelector | None = None, *, timeout_s: Seconds = 3.0
    ) -> MessageExt:
        """Send a message and wait for the reply of a consumer; the other arguments are those of ``send``.

        Raises:
            RequestTimeoutError: No reply arrived in time.
            ClientError, BrokerResponseError, RemotingError: As in ``send``.
        """
        self._check_started()
        deadline = asyncio.get_running_loop().time() + timeout_s
        correlation_id, reply = self._client.replies.open()
        try:
            question = self._prepare(message, question_properties(correlation_id, self._client.client_id, timeout_s))
            # The reply comes by whichever broker the consumer chooses.
            await self._client.greet_all_brokers(question.topic, timeout_s)
            left_s = deadline - asyncio.get_running_loop().time()
            result = await self._sender.send(question, queue or _by_key(message), left_s)
            async with asyncio.timeout_at(deadline):
                return await reply
        except TimeoutError:
            raise RequestTimeoutError(
                f"no reply to {result.msg_id} within {timeout_s:g} s, topic {message.topic}; "
                "a consumer must be subscribed to it and call reply()"
            ) from None
        finally:
            self._client.replies.close(correlation_id)

    @checked
    async def send_retry(self, message: Message, group: str, *, timeout_s: Seconds | None = None) -> SendResult:
        """Send a message to the retry topic of a consumer group (sendMessageBackAsNormalMessage).

        The group's consumers get it as a message of ``message.topic``; other groups do not get it.

        Raises:
            ClientError, BrokerResponseError, RemotingError: As in ``send``.
        """
        self._check_started()
        check_group(group)
        origin = self._named(message)
        topic = self._client.namespace.wrap(RETRY_GROUP_TOPIC_PREFIX + group)
        retry = self._encode(msgspec.structs.replace(origin, topic=topic), {PROPERTY_RETRY_TOPIC: origin.topic})
        return await self._sender.send(retry, None, timeout_s or self._send_timeout_s)

    async def reply(self, question: Question, body: bytes, *, timeout_s: float | None = None) -> SendResult:
        """Reply to a received message that was sent by ``request``.

        Raises:
            InvalidMessageError: The message asks for no reply.
            SendFailedError: No broker can pass the reply on, for example because the asking client is gone.
            ClientError, BrokerResponseError, RemotingError: As in ``send``.
        """
        self._check_started()
        outgoing = self._encode(Message(reply_topic(question), body), reply_properties(question))
        reply = msgspec.structs.replace(outgoing, is_reply=True)
        return await self._sender.send(reply, None, timeout_s or self._send_timeout_s)

    def _prepare(self, message: Message, system_properties: Mapping[str, str] = _NO_PROPERTIES) -> Outgoing:
        self._check_started()
        return self._encode(self._named(message), system_properties)

    def _encode(self, message: Message, system_properties: Mapping[str, str]) -> Outgoing:
        check_message(message, self._max_message_size)
        return prepare_message(message, self._new_unique_id(), self._compression, system_properties)

    def _named(self, message: Message) -> Message:
        """Return the message with the name of its topic that brokers know."""
        if not isinstance(message, Message):
            raise InvalidMessageError(f"{reprlib.repr(message)} is no Message; give Message(topic, body)")
        topic = self._client.namespace.wrap(message.topic)
        return message if topic == message.topic else msgspec.structs.replace(message, topic=topic)


def _by_key(message: Message) -> QueueSelector | None:
    return select_by_hash(message.sharding_key) if message.sharding_key else None
