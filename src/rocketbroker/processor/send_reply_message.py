"""SEND_REPLY_MESSAGE (324) and SEND_REPLY_MESSAGE_V2 (325): answers to questions (ReplyMessageProcessor).

A producer that asks waits in its own process; REPLY_TO_CLIENT in the question says which. Who answers sends the reply
to ``<cluster>_REPLY_TOPIC``, and the broker passes it on to that process, which must be connected to this broker.
"""

import logging
from collections.abc import Awaitable

from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.codec.message.message_id import create_message_id, host_text
from rocketbroker.codec.message.message_properties import append_property, get_property_text, replace_property
from rocketbroker.codec.message.message_sys_flag import host_flags
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.send_message import ReplyMessageRequestHeader, SendMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.common.errors import BrokerResponseError, RemotingError
from rocketbroker.processor.support.key_limit import KeyLimit
from rocketbroker.processor.support.topic_target import TopicTarget, TopicTargets, other_queue
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageStatus
from rocketbroker.store.flush.acknowledgement import Acknowledgements
from rocketbroker.store.message_appender import MessageAppender

log = logging.getLogger(__name__)

Header = SendMessageRequestHeader

REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
# What Broker2Client gives a client to answer.
TIMEOUT_S = 10.0
# "0" stands for no id: clients cannot read an answer without one.
_NOT_STORED = ("0", 0)


class SendReplyMessageProcessor:
    """Passes replies on to who asked, and stores those that arrived (``storeReplyMessageEnable``).

    RocketMQ stores a reply that reached nobody as well, and once more each time it is sent again; here a reply that is
    refused leaves nothing behind.

    Args:
        config: region, whether replies are stored.
        store_config: the limits of a message.
        appender: takes the replies.
        acknowledgements: say when a stored reply may be answered.
        store_host: the broker's address as records hold it.
        targets: finds the topic.
        producers: finds who asked.
        clock: dates the replies.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that a reply depends on
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        appender: MessageAppender,
        acknowledgements: Acknowledgements,
        store_host: bytes,
        targets: TopicTargets,
        producers: ProducerManager,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._appender = appender
        self._acknowledgements = acknowledgements
        self._targets = targets
        self._producers = producers
        self._clock = clock
        self._store_host = store_host
        self._key_limit = KeyLimit(store_config.max_keys_per_message)

    def process(self, connection: Connection, command: RemotingCommand[Header]) -> Awaitable[Command]:
        """Answer the request once the client that asked has the reply.

        It does not wait for its turn among other requests of its connection: one who asked and has died would hold up
        the replies to all others for 10 s.

        Raises:
            BrokerResponseError: SYSTEM_ERROR, the reply names no client, or that is not here or does not take it;
                MESSAGE_ILLEGAL, the body is too long; as a send for a topic or a queue that cannot be.
        """
        limit = self._store_config.max_message_size
        if len(command.body) > limit:
            text = (
                f"maxMessageSize: the reply has {len(command.body):,} bytes, over the limit of {limit:,}; "
                "split it or raise maxMessageSize"
            )
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, text)
        header = command.header
        target = self._targets.find(header, connection.remote_address)
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

    def _with_own(self, properties: bytes) -> bytes:
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
            # What is written to it stays in memory.
            raise _refusal(f"push reply message to {client_id} fail: it takes what it is sent too slowly")
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
            properties=self._with_own(header.properties.encode()),
            flag=header.flag,
            sys_flag=header.sys_flag | host_flags(connection.remote_host, self._store_host),
            born_timestamp=header.born_timestamp,
            born_host=connection.remote_host,
            reconsume_times=header.reconsume_times,
        )

    async def _put(self, message: MessageExtBrokerInner, target: TopicTarget) -> tuple[str, int]:
        """Id and queue offset of the stored reply. It has arrived, so that a store that refuses it is told of only."""
        result = self._appender.put_message(message)
        # Read events end with this, and a coroutine runs outside of them.
        self._appender.dispatch()
        if result.status is PutMessageStatus.PUT_OK:
            waits = self._targets.waits((message.topic, message.queue_id))
            why = (await self._acknowledgements.acknowledged(result, waits)).reason
        else:
            why = f"[{result.status.name}] {result.reason}"
        if why:
            log.warning("a reply was passed on, and is not in %s: %s", message.topic, why)
            return _NOT_STORED
        target.stats.add(1, result.size)
        return create_message_id(self._store_host, result.physical_offset), result.queue_offset


def _refusal(remark: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
