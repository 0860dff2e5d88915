"""SEND_REPLY_MESSAGE (324) and SEND_REPLY_MESSAGE_V2 (325): replies to the clients that asked (ReplyMessageProcessor).

The property REPLY_TO_CLIENT of a question names the producer that waits for the reply. The consumer sends its reply to
``<cluster>_REPLY_TOPIC``, and the broker passes it on to that producer, which must be connected to this broker.
"""

import logging
from collections.abc import Awaitable

from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.codec.message.message_const import host_flags
from rocketbroker.codec.message.message_id import create_message_id, host_text
from rocketbroker.codec.message.message_properties import append_property, get_property_text, replace_property
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.headers.message import ReplyMessageRequestHeader, SendMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, RemotingError
from rocketbroker.processor.support.put_answers import MessagePuts
from rocketbroker.processor.support.request_family import NO_MESSAGES, Refusal, answers
from rocketbroker.processor.support.sent_properties import KeyLimit
from rocketbroker.processor.support.topic_target import HEADER_V2, TopicTarget, TopicTargets, other_queue
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageStatus

log = logging.getLogger(__name__)

Header = SendMessageRequestHeader

REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
# Time for a client to answer, as in Broker2Client.
TIMEOUT_S = 10.0
# "0" stands for no id: clients cannot read an answer without one.
_NOT_STORED = ("0", 0)
_AT_SLAVE = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, NO_MESSAGES)


class SendReplyMessageProcessor:
    """Passes replies on to the clients that asked, and stores those that arrived (``storeReplyMessageEnable``).

    RocketMQ also stores an undelivered reply, once more for each resend; here a rejected reply leaves no trace.

    Args:
        config: region, ``storeReplyMessageEnable``.
        puts: puts into the store, and its limits.
        targets: topics of the replies.
        producers: clients that asked.
        clock: clock for the times in replies.
    """

    def __init__(
        self,
        config: BrokerConfig,
        puts: MessagePuts,
        targets: TopicTargets,
        producers: ProducerManager,
        clock: Clock,
    ) -> None:
        store_config, appender, acknowledgements, store_host = puts
        self._config = config
        self._store_config = store_config
        self._appender = appender
        self._acknowledgements = acknowledgements
        self._targets = targets
        self._producers = producers
        self._clock = clock
        self._store_host = store_host
        self._key_limit = KeyLimit(store_config.max_keys_per_message)

    @answers(RequestCode.SEND_REPLY_MESSAGE, Header, Audience.CLIENT, takes_large_bodies=True, at_slave=_AT_SLAVE)
    @answers(RequestCode.SEND_REPLY_MESSAGE_V2, HEADER_V2, Audience.CLIENT, takes_large_bodies=True, at_slave=_AT_SLAVE)
    def send_reply_message(self, connection: Connection, command: RemotingCommand[Header]) -> Awaitable[Command]:
        """Pass a reply on, and answer once the client that asked has it.

        It does not wait for its turn among other requests of its connection: a dead client would delay the replies to
        all others by 10 s.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if the reply names no client, or the client is not connected or rejects
                it; MESSAGE_ILLEGAL if the body is too long; the codes of a send for an illegal topic or queue.
        """
        limit = self._store_config.max_message_size
        if len(command.body) > limit:
            text = (
                f"maxMessageSize: the reply has {len(command.body):,} bytes, above the limit of {limit:,}; "
                "split it or raise maxMessageSize"
            )
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, text)
        header = command.header
        target = self._targets.find(header, connection)
        queue_id = header.queue_id
        if not 0 <= queue_id < target.queue_nums:
            queue_id = other_queue(header, target)
        message = self._message(connection, header, queue_id, bytes(command.body))
        self._key_limit.check(message.properties)
        return self._pass_on(self._asker(message.properties), header, message, target)

    async def _pass_on(
        self, asker: Connection, header: Header, message: MessageExtBrokerInner, target: TopicTarget
    ) -> Command:
        await self._push(asker, header, message)
        msg_id, queue_offset = _NOT_STORED
        if self._config.store_reply_message_enable:
            msg_id, queue_offset = await self._put(message, target)
        fields = {"msgId": msg_id, "queueId": message.queue_id, "queueOffset": queue_offset}
        trace = {"MSG_REGION": self._config.region_id, "TRACE_ON": self._config.trace_on}
        return response(header=fields | trace)

    def _with_broker_properties(self, properties: bytes) -> bytes:
        """Return the properties with those that the broker adds to each message."""
        properties = replace_property(properties, b"MSG_REGION", self._config.region_id.encode())
        return replace_property(properties, b"TRACE_ON", b"true" if self._config.trace_on else b"false")

    def _asker(self, properties: bytes) -> Connection:
        """Find the connection of the client that the reply is for."""
        client_id = get_property_text(properties, REPLY_TO_CLIENT)
        if client_id is None:
            raise _refusal(f"reply message properties[{REPLY_TO_CLIENT}] is null")
        found = self._producers.find_channel(client_id)
        if found is None:
            raise _refusal(f"push reply message fail, channel of <{client_id}> not found.")
        if found.is_behind:
            # Requests written to it would stay in memory.
            raise _refusal(f"push reply message to {client_id} fail: it reads its connection too slowly")
        return found

    async def _push(self, asker: Connection, header: Header, message: MessageExtBrokerInner) -> None:
        pushed = append_property(message.properties, b"PUSH_REPLY_TIME", str(self._clock.time_ms()).encode())
        question = request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._for_client(header, message, pushed), bytes(message.body)
        )
        client_id = get_property_text(message.properties, REPLY_TO_CLIENT)
        try:
            answer = await asker.invoke(question, TIMEOUT_S)
        except RemotingError as error:
            raise _refusal(f"push reply message to {client_id} fail: {error}") from error
        if answer.code != ResponseCode.SUCCESS:
            raise _refusal(f"push reply message to {client_id} fail: code {answer.code}, {answer.remark}")

    def _for_client(
        self, header: Header, message: MessageExtBrokerInner, properties: bytes
    ) -> ReplyMessageRequestHeader:
        return ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=message.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=host_text(message.born_host),
            store_host=host_text(self._store_host),
            store_timestamp=self._clock.time_ms(),
            properties=properties.decode(),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )

    def _message(self, connection: Connection, header: Header, queue_id: int, body: bytes) -> MessageExtBrokerInner:
        return MessageExtBrokerInner(
            topic=header.topic,
            queue_id=queue_id,
            body=body,
            properties=self._with_broker_properties(header.properties.encode()),
            flag=header.flag,
            sys_flag=header.sys_flag | host_flags(connection.remote_host, self._store_host),
            born_timestamp=header.born_timestamp,
            born_host=connection.remote_host,
            reconsume_times=header.reconsume_times,
        )

    async def _put(self, message: MessageExtBrokerInner, target: TopicTarget) -> tuple[str, int]:
        """Store a reply and return its id and queue offset; a failed put is only logged: the reply has arrived."""
        result = self._appender.put_message(message)
        # Read events end with a dispatch, but a coroutine runs outside of them.
        self._appender.dispatch()
        if result.status is PutMessageStatus.PUT_OK:
            waits = self._targets.waits((message.topic, message.queue_id))
            why = (await self._acknowledgements.acknowledged(result, waits)).reason
        else:
            why = f"[{result.status.name}] {result.reason}"
        if why:
            log.warning("reply passed on, but not stored in topic %s: %s", message.topic, why)
            return _NOT_STORED
        target.stats.add(1, result.size)
        if target.meter is not None:
            target.meter.sent(message.topic, message.properties, result.size)
        return create_message_id(self._store_host, result.physical_offset), result.queue_offset


def _refusal(remark: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
