"""Messages made ready for the wire (DefaultMQProducerImpl.sendKernelImpl, MessageBatch)."""

from collections.abc import Callable, Sequence

import msgspec

from rocketbroker.client.errors import InvalidMessageError
from rocketbroker.client.message import Message
from rocketbroker.client.requests import client_request
from rocketbroker.codec.message.compression import compress
from rocketbroker.codec.message.message_batch import encode_batch
from rocketbroker.codec.message.message_const import (
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from rocketbroker.codec.message.message_properties import check_properties_length, encode_properties
from rocketbroker.codec.message.message_sys_flag import COMPRESSED_FLAG, COMPRESSION_ZLIB_TYPE
from rocketbroker.codec.message.topic_validator import AUTO_CREATE_TOPIC_KEY_TOPIC, RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.headers.send_message import SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode

_COMPRESS_LEVEL = 5


class Outgoing(msgspec.Struct, frozen=True):
    """A message or a batch as it is sent, the same on each try; ``unique_ids`` is comma-joined for a batch."""

    topic: str
    body: bytes
    properties: str
    unique_ids: str
    flag: int = 0
    sys_flag: int = 0
    is_batch: bool = False

    def request(
        self,
        group: str,
        queue: MessageQueue,
        born_timestamp: int,
        default_topic_queue_nums: int,
        *,
        oneway: bool = False,
    ) -> Command:
        """Return the request that sends it to a queue."""
        header = SendMessageRequestHeaderV2(
            producer_group=group,
            topic=self.topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=default_topic_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=self.sys_flag,
            born_timestamp=born_timestamp,
            flag=self.flag,
            properties=self.properties,
            batch=self.is_batch,
            broker_name=queue.broker_name,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if self.is_batch else RequestCode.SEND_MESSAGE_V2
        return client_request(code, header, self.body, oneway=oneway)


def prepare_message(message: Message, unique_id: str, compress_over: int) -> Outgoing:
    """Encode one message; a body of ``compress_over`` bytes or more is compressed when that makes it smaller.

    Raises:
        CodecError: a property holds a separator, or all properties together are too long.
    """
    properties = _encoded_properties(message, unique_id)
    body, sys_flag = message.body, 0
    if len(body) >= compress_over:
        packed = compress(body, _COMPRESS_LEVEL)
        if len(packed) < len(body):
            body, sys_flag = packed, COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE
    return Outgoing(message.topic, body, properties.decode(), unique_id, message.flag, sys_flag)


def prepare_batch(messages: Sequence[Message], new_unique_id: Callable[[], str]) -> Outgoing:
    """Several messages for one queue in one request.

    Raises:
        InvalidMessageError: they cannot be one batch; the text says why.
        CodecError: as in ``prepare_message``.
    """
    check_batch(messages)
    ids = [new_unique_id() for _ in messages]
    body = encode_batch(
        (message.flag, message.body, _encoded_properties(message, unique_id))
        for message, unique_id in zip(messages, ids, strict=True)
    )
    wait = "true" if messages[0].wait_store_msg_ok else "false"
    whole = {PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: new_unique_id(), PROPERTY_WAIT_STORE_MSG_OK: wait}
    return Outgoing(messages[0].topic, body, encode_properties(whole).decode(), ",".join(ids), is_batch=True)


def check_batch(messages: Sequence[Message]) -> None:
    """Check that messages can go as one batch (MessageBatch.generateFromList).

    Raises:
        InvalidMessageError: no messages, different topics or waits, or a delayed or retried message.
    """
    if not messages:
        raise InvalidMessageError("the batch is empty; give at least one message")
    first = messages[0]
    if first.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        raise InvalidMessageError(f"topic {first.topic} is a retry topic; send its messages one by one")
    for message in messages:
        if message.topic != first.topic:
            raise InvalidMessageError(
                f"a batch has one topic, but this one has {first.topic} and {message.topic}; send one batch for each"
            )
        if message.wait_store_msg_ok != first.wait_store_msg_ok:
            raise InvalidMessageError(
                "the messages of a batch differ in wait_store_msg_ok; send one batch for each value"
            )
        if message.delay_time_level > 0:
            raise InvalidMessageError(
                "delayed messages (delay_time_level) cannot be sent as a batch; send them one by one"
            )


def _encoded_properties(message: Message, unique_id: str) -> bytes:
    properties = message.all_properties()
    properties[PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = unique_id
    encoded = encode_properties(properties)
    check_properties_length(encoded)
    return encoded
