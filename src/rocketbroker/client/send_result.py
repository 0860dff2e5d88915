"""Result of a send (org.apache.rocketmq.client.producer.SendResult and SendStatus)."""

from enum import IntEnum

import msgspec
from msgspec import structs

from rocketbroker.client.broker_errors import broker_error
from rocketbroker.client.message import MessageType
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.headers.message import SendMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, from_ext_fields
from rocketbroker.codec.remoting.response_code import ResponseCode


class SendStatus(IntEnum):
    """Durability of a stored message; every status means that the master has stored it."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3


class SendResult(msgspec.Struct, frozen=True):
    """Place of a sent message.

    ``msg_id`` is the unique id (comma-joined for a batch), ``offset_msg_id`` the broker's id, ``queue_offset`` the
    position in the queue, of the first message for a batch. ``Producer.recall`` takes ``recall_handle`` to cancel a
    message for later.
    """

    send_status: SendStatus
    msg_id: str
    offset_msg_id: str
    message_queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str | None = None
    trace_on: bool = False
    msg_type: MessageType = MessageType.NORMAL
    recall_handle: str | None = None


_STATUS_OF_CODE = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


def send_result(answer: Command, queue: MessageQueue, unique_ids: str, msg_type: MessageType) -> SendResult:
    """Return the result in the answer to a send.

    Raises:
        BrokerResponseError: The broker rejected the message.
        CodecError: A field of the answer is missing or mistyped.
    """
    status = _STATUS_OF_CODE.get(answer.code)
    if status is None:
        raise broker_error(answer.code, answer.remark)
    header = from_ext_fields(answer.header, SendMessageResponseHeader)
    fields: dict[str, str] = answer.header
    return SendResult(
        status,
        unique_ids,
        header.msg_id,
        queue if header.queue_id == queue.queue_id else structs.replace(queue, queue_id=header.queue_id),
        header.queue_offset,
        header.transaction_id,
        fields.get("MSG_REGION"),
        fields.get("TRACE_ON", "true") != "false",
        msg_type,
        header.recall_handle,
    )
