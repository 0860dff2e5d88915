"""Sends, ends of transactions, and recalls of delayed messages (SendMessageActivity, RecallMessageActivity)."""

from typing import Final

from rocketbroker.codec.message.message_batch import encode_batch
from rocketbroker.codec.message.message_const import PROPERTY_SHARDING_KEY, PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.message_id import decode_message_id, decode_recall_handle
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.message.topic_validator import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
)
from rocketbroker.codec.remoting.headers.message import (
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.proxy.call_context import (
    OK,
    CallContext,
    StatusError,
    awaited,
    check_topic,
    header_of,
    status_of,
    status_of_all,
    succeeded,
)
from rocketbroker.proxy.clients import Clients
from rocketbroker.proxy.message_conversion import OutgoingMessage, outgoing
from rocketbroker.proxy.messaging_pb2 import (
    Code,
    EndTransactionRequest,
    EndTransactionResponse,
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
)
from rocketbroker.proxy.routing import Routing
from rocketbroker.proxy.service_manager import ServiceManager
from rocketbroker.proxy.transactions import HalfMessage, OpenTransactions

_DEFAULT_QUEUES: Final = 4
# Answers to messages that are stored, though not as safely as asked.
_STORED: Final = frozenset(
    {ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE}
)


class Producing:
    """Methods of producers.

    Args:
        brokers: the brokers.
        routing: chooses queues.
        clients: the clients.
        transactions: open transactions.
        clock: clock of delivery times.
        config: limits of messages.
    """

    def __init__(
        self,
        brokers: ServiceManager,
        routing: Routing,
        clients: Clients,
        transactions: OpenTransactions,
        clock: Clock,
        config: ProxyConfig,
    ) -> None:
        self._brokers = brokers
        self._routing = routing
        self._clients = clients
        self._transactions = transactions
        self._clock = clock
        self._config = config

    async def send_message(self, send: SendMessageRequest, context: CallContext) -> SendMessageResponse:
        """Store messages of one topic, all or none, and return an entry for each.

        Raises:
            StatusError: A message is illegal, or not of a type that the topic takes.
            BrokerResponseError: The broker did not store them.
            RemotingError: The broker cannot be reached.
        """
        if not send.messages:
            raise StatusError(Code.MESSAGE_CORRUPTED, "no message to send; send at least one")
        topic = check_topic(send.messages[0].topic)
        if any(message.topic != send.messages[0].topic for message in send.messages):
            remark = f"topic in message is not same: the first is for {topic}; send the others by other requests"
            raise StatusError(Code.MESSAGE_CORRUPTED, remark)
        now_ms = self._clock.time_ms()
        messages = [outgoing(message, context.peer, now_ms, self._config) for message in send.messages]
        client = self._clients.of(context)
        await self._check_types(topic, {message.message_type for message in messages})
        if len(messages) > 1:
            _check_batch(messages)
        queue = await self._routing.writable_queue(topic, messages[0].properties.get(PROPERTY_SHARDING_KEY, ""))
        answer = await awaited(self._brokers.invoke(client, queue.broker_name, _send_command(queue, messages)))
        ids = [message.properties[PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] for message in messages]
        if answer.code != ResponseCode.SUCCESS:
            error = BrokerResponseError(answer.code, answer.remark or "")
            if answer.code not in _STORED:
                raise error
            entries = [SendResultEntry(status=status_of(error)) for _ in ids]
        else:
            header = header_of(answer, SendMessageResponseHeader)
            if messages[0].message_type == "TRANSACTION":
                place = HalfMessage(queue.broker_name, header.queue_offset, decode_message_id(header.msg_id).offset)
                self._transactions.add(topic, ids[0], place)
            entries = [
                SendResultEntry(
                    status=OK,
                    message_id=message_id,
                    transaction_id=message_id,
                    offset=header.queue_offset + index,
                    recall_handle=header.recall_handle or "",
                )
                for index, message_id in enumerate(ids)
            ]
        return SendMessageResponse(status=status_of_all([each.status for each in entries]), entries=entries)

    async def _check_types(self, topic: str, types: set[str]) -> None:
        """Compare the types of messages with the one of the topic, which NORMAL is without an attribute."""
        if not self._config.enable_topic_message_type_check:
            return
        if topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)):
            return
        wanted = (await self._brokers.topic_config(topic)).attributes.get("message.type") or "NORMAL"
        for found in sorted(types):
            if wanted not in {found, "MIXED"}:
                remark = (
                    f"TopicMessageType validate failed, the expected type is {wanted}, but actual type is {found}: set "
                    f"the attribute message.type of the topic by mqadmin updateTopic -t {topic} -a "
                    f"+message.type={found}, or use another topic"
                )
                raise StatusError(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, remark)

    async def end_transaction(self, end: EndTransactionRequest, context: CallContext) -> EndTransactionResponse:
        """Commit a transaction or roll it back; an unknown outcome leaves it open."""
        return await self._transactions.end(self._brokers, self._clients.of(context), end)

    async def recall_message(self, recall: RecallMessageRequest, context: CallContext) -> RecallMessageResponse:
        """Cancel a delayed message before it is delivered.

        Raises:
            StatusError: The topic or the handle is illegal, or the topic takes no delayed messages.
            BrokerResponseError: The broker did not cancel it.
            RemotingError: The broker cannot be reached.
        """
        topic = check_topic(recall.topic)
        await self._check_types(topic, {"DELAY"})
        try:
            handle = decode_recall_handle(recall.recall_handle)
        except CodecError as error:
            remark = f"{error}; use the one that the send was answered with"
            raise StatusError(Code.INTERNAL_SERVER_ERROR, remark) from error
        header = RecallMessageRequestHeader(topic, recall.recall_handle)
        command = request(RequestCode.RECALL_MESSAGE, header)
        answer = await succeeded(self._brokers.invoke(self._clients.of(context), handle.broker_name, command))
        return RecallMessageResponse(status=OK, message_id=header_of(answer, RecallMessageResponseHeader).msg_id)


def _check_batch(messages: list[OutgoingMessage]) -> None:
    """Check that messages can be stored together.

    Raises:
        StatusError: BAD_REQUEST, ILLEGAL_MESSAGE_GROUP.
    """
    first = messages[0]
    if any(message.sys_flag != first.sys_flag for message in messages):
        remark = "messages of one request have different body encodings or types; send them one by one"
        raise StatusError(Code.BAD_REQUEST, remark)
    single = {message.message_type for message in messages} & {"DELAY", "TRANSACTION"}
    if single:
        remark = f"messages of type {single.pop()} cannot be sent together; send them one by one"
        raise StatusError(Code.BAD_REQUEST, remark)
    if len({message.properties.get(PROPERTY_SHARDING_KEY) for message in messages}) > 1:
        remark = "messages of one request have different message groups, whose order needs several queues; send each "
        raise StatusError(Code.ILLEGAL_MESSAGE_GROUP, f"{remark}group by itself")


def _send_command(queue: MessageQueue, messages: list[OutgoingMessage]) -> Command:
    first, is_batch = messages[0], len(messages) > 1
    encoded = [(0, message.body, encode_properties(message.properties)) for message in messages]
    header = SendMessageRequestHeaderV2(
        producer_group=queue.topic,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
        default_topic_queue_nums=_DEFAULT_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=first.sys_flag,
        born_timestamp=first.born_timestamp,
        flag=0,
        properties=encoded[0][2].decode(),
        batch=is_batch,
        broker_name=queue.broker_name,
    )
    if is_batch:
        return request(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(encoded))
    return request(RequestCode.SEND_MESSAGE_V2, header, first.body)
