"""POP consumption: batches of acknowledgements, and assignments of queues to clients."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, Self

import msgspec

from rocketbroker.codec.java_types import Int, Long
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import MessageModel
from rocketbroker.codec.remoting.bodies.remoting_serializable import Buffer, RemotingSerializable, decode_body
from rocketbroker.common.errors import CodecError

#: Limit of ``bit_set`` in bytes: 65,536 offsets. A check point has 32 messages, between which a filter may skip some.
MAX_BIT_SET: Final = 8 << 10


class BatchAck(RemotingSerializable):
    """Messages of one check point; ``retry`` as in a handle, ``bit_set`` with bit 0 for ``start_offset``.

    All fields are required, so that a body with long names is not taken for one with few fields.
    """

    consumer_group: str = msgspec.field(name="c")
    topic: str = msgspec.field(name="t")
    retry: str = msgspec.field(name="r")
    start_offset: Long = msgspec.field(name="so")
    queue_id: Int = msgspec.field(name="q")
    revive_queue_id: Int = msgspec.field(name="rq")
    pop_time: Long = msgspec.field(name="pt")
    invisible_time: Long = msgspec.field(name="it")
    # java.util.BitSet.toByteArray: bit i is bit i % 8 of byte i / 8, counted from the least significant.
    bit_set: bytes = msgspec.field(name="b")

    def offsets(self) -> Sequence[int]:
        """Return the acknowledged queue offsets, ascending; a range if they follow each other.

        Raises:
            CodecError: ``bit_set`` is too long.
        """
        if len(self.bit_set) > MAX_BIT_SET:
            raise CodecError(
                f"BatchAck: bitSet of {len(self.bit_set):,} bytes exceeds the limit of {MAX_BIT_SET:,}; "
                "acknowledge the messages of one pop at a time"
            )
        bits = int.from_bytes(self.bit_set, "little")
        zeros = (bits & -bits).bit_length() - 1
        if bits and bits >> zeros == (1 << bits.bit_count()) - 1:
            first = self.start_offset + zeros
            return range(first, first + bits.bit_count())
        return [
            self.start_offset + 8 * index + bit
            for index, byte in enumerate(self.bit_set)
            if byte
            for bit in range(8)
            if byte >> bit & 1
        ]


_LONG_NAMES: Final = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}


class BatchAckMessageRequestBody(RemotingSerializable):
    """Request of BATCH_ACK_MESSAGE (200151)."""

    broker_name: str | None = None
    acks: list[BatchAck] = []

    @classmethod
    def decode(cls, body: Buffer, *, most_values: int | None = None) -> Self:
        """Decode a body with the short or the long names of BatchAck.

        Raises:
            CodecError: It is not JSON, or a field is missing or of the wrong type; the text names it.
        """
        return decode_body(body, cls, most_values, _with_short_names)


def _with_short_names(body: Any) -> Any:
    acks = body.get("acks") if isinstance(body, dict) else None
    if isinstance(acks, list):
        body["acks"] = [
            {_LONG_NAMES.get(name, name): value for name, value in ack.items()} if isinstance(ack, dict) else ack
            for ack in acks
        ]
    return body


class MessageRequestMode(StrEnum):
    """Delivery mode of a group for a topic."""

    PULL = "PULL"
    POP = "POP"


class SetMessageRequestModeRequestBody(RemotingSerializable):
    """Request of SET_MESSAGE_REQUEST_MODE (401): mode of one group for one topic.

    With POP, ``pop_share_queue_num`` clients share the queues of each; 0 or less: all clients share all queues.
    """

    topic: str | None = None
    consumer_group: str | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: Int = 0


class MessageRequestModeSerializeWrapper(RemotingSerializable):
    """Answer to GET_ALL_MESSAGE_REQUEST_MODE (402) and messageRequestMode.json, by topic and group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}


class QueryAssignmentRequestBody(RemotingSerializable):
    """Request of QUERY_ASSIGNMENT (400); ``strategy_name`` AVG or AVG_BY_CIRCLE."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: MessageModel = MessageModel.CLUSTERING


class MessageQueueAssignment(RemotingSerializable):
    """One queue of a client. Queue -1: pop from all queues of that broker."""

    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] | None = None


class QueryAssignmentResponseBody(RemotingSerializable):
    """Answer to QUERY_ASSIGNMENT (400). None: keep the queues that the client has."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None
