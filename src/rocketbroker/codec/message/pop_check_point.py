"""Records of the revive topic: check points and acknowledgements (org.apache.rocketmq.store.pop).

Bodies are JSON with short names. A field that has its default is left out, which fastjson reads as that default, and
unknown fields are skipped. The tag of the message names the kind, its ``UNIQ_KEY`` is ``unique_id``.

A check point covers the messages of one queue that one pop delivered. An acknowledgement names its check point by
topic, group, queue, start offset, pop time and broker.
"""

from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self

import msgspec

from rocketbroker.codec.java_types import Int, Long, ReadableBuffer
from rocketbroker.common.errors import CodecError

CK_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"

# java.lang.Byte.
Byte = Annotated[int, msgspec.Meta(ge=-128, le=127)]


class ReviveRecord(msgspec.Struct, omit_defaults=True):
    """Body of a record; ``tag`` is that of its message."""

    tag: ClassVar[str]

    def encode(self) -> bytes:
        """Return the body of the message."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, body: ReadableBuffer) -> Self:
        """Decode the body of a message.

        Raises:
            CodecError: It is not JSON, or a field is missing or of the wrong type; the text names it.
        """
        try:
            record: Self = _decoder(cls)(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CodecError(f"{cls.__name__}: {error}") from None
        return record


@cache
def _decoder(kind: type[Any]) -> Any:
    return msgspec.json.Decoder(kind).decode


class PopCheckPoint(ReviveRecord):
    """Messages of one queue that one pop delivered; due at ``revive_time``. Times are in ms.

    ``queue_offset_diff``: distances of the messages from ``start_offset``; without it, the ``num`` messages from there
    on. ``re_put_times``: a decimal number. ``suspend``: the redelivery is not counted as a retry.

    RocketMQ lacks the last two fields. They name the check point that this one replaces for one of its messages.
    """

    tag: ClassVar[str] = CK_TAG

    start_offset: Long = msgspec.field(name="so")
    pop_time: Long = msgspec.field(name="pt")
    invisible_time: Long = msgspec.field(name="it")
    num: Byte = msgspec.field(name="n")
    queue_id: Int = msgspec.field(name="q")
    topic: str = msgspec.field(name="t")
    cid: str = msgspec.field(name="c")
    bit_map: Int = msgspec.field(name="bm", default=0)
    revive_offset: Long = msgspec.field(name="ro", default=0)
    queue_offset_diff: list[Int] | None = msgspec.field(name="d", default=None)
    broker_name: str | None = msgspec.field(name="bn", default=None)
    re_put_times: str | None = msgspec.field(name="rp", default=None)
    suspend: bool = msgspec.field(name="sp", default=False)
    origin_start_offset: Long | None = msgspec.field(name="xso", default=None)
    origin_pop_time: Long | None = msgspec.field(name="xpt", default=None)

    @property
    def revive_time(self) -> int:
        """Time after which messages that were not acknowledged are delivered again."""
        return self.pop_time + self.invisible_time

    @property
    def unique_id(self) -> str:
        """``UNIQ_KEY`` of the message (genCkUniqueId)."""
        return (
            f"{self.topic}@{self.queue_id}@{self.start_offset}@{self.cid}@{self.pop_time}@{self.broker_name}@{self.tag}"
        )

    def index_of_ack(self, offset: int) -> int:
        """Return the index of the message at this queue offset, -1 if the check point does not cover it."""
        diff = offset - self.start_offset
        if self.queue_offset_diff:
            return self.queue_offset_diff.index(diff) if diff in self.queue_offset_diff else -1
        return diff if 0 <= diff < self.num else -1

    def offset_by_index(self, index: int) -> int:
        """Return the queue offset of a message (ackOffsetByIndex)."""
        return self.start_offset + (self.queue_offset_diff[index] if self.queue_offset_diff else index)


class AckMsg(ReviveRecord):
    """Acknowledgement of the message at ``ack_offset``."""

    tag: ClassVar[str] = ACK_TAG

    ack_offset: Long = msgspec.field(name="ao")
    start_offset: Long = msgspec.field(name="so")
    consumer_group: str = msgspec.field(name="c")
    topic: str = msgspec.field(name="t")
    queue_id: Int = msgspec.field(name="q")
    pop_time: Long = msgspec.field(name="pt")
    broker_name: str | None = msgspec.field(name="bn", default=None)

    @property
    def unique_id(self) -> str:
        """``UNIQ_KEY`` of the message (genAckUniqueId)."""
        return (
            f"{self.topic}@{self.queue_id}@{self.ack_offset}@{self.consumer_group}@{self.pop_time}@{self.broker_name}"
            f"@{self.tag}"
        )

    @property
    def offsets(self) -> list[int]:
        """Queue offsets of the acknowledged messages."""
        return [self.ack_offset]


class BatchAckMsg(AckMsg):
    """Acknowledgement of the messages at ``ack_offset_list``; ``ack_offset`` is -1."""

    tag: ClassVar[str] = BATCH_ACK_TAG

    ack_offset_list: list[Long] = msgspec.field(name="aol", default_factory=list)

    @property
    def offsets(self) -> list[int]:
        """Queue offsets of the acknowledged messages."""
        return self.ack_offset_list

    @property
    def unique_id(self) -> str:
        """``UNIQ_KEY`` of the message (genBatchAckUniqueId)."""
        offsets = ", ".join(map(str, self.ack_offset_list))
        return f"{self.topic}@{self.queue_id}@[{offsets}]@{self.consumer_group}@{self.pop_time}@{self.tag}"
