"""Messages that wait in a system topic, decoded for their copies from records that are known to be sound.

This does in one step what ``decode_record`` and ``copy_message`` do in general, because all messages due at once pass
through it.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from rocketbroker.broker.message.real_place import REAL_TOPIC, Place, real_place
from rocketbroker.codec.message.expected_record import ExpectedRecord
from rocketbroker.codec.message.message_encoder import RECORD_HEADS, SYS_FLAG_POSITION
from rocketbroker.codec.message.message_sys_flag import STOREHOSTADDRESS_V6_FLAG, host_flags
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult

#: Stores a copy, or sends it to another master; in that case its result has to be awaited.
Put = Callable[[MessageExtBrokerInner], PutMessageResult | Awaitable[PutMessageResult]]

_REAL_TOPIC_NAME: Final = REAL_TOPIC + b"\x01"
_PAIR_END: Final = 2
_PROPERTIES_LENGTH: Final = 2
# Bounds of the cache: number of property ends, and the longest of them.
_MOST_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED: Final = 256


class WaitingMessage(NamedTuple):
    """A message with its place in the queue in which it waits.

    Attributes:
        queue_offset: its offset in that queue.
        store_timestamp: store time there, in ms.
        message: its copy, without a topic yet and with unchanged properties.
    """

    queue_offset: int
    store_timestamp: int
    message: MessageExtBrokerInner


def unbroken(found: Sequence[WaitingMessage], entries: Sequence[ExpectedRecord]) -> list[WaitingMessage]:
    """Return the messages before the first one that entries name and that was not found."""
    pairs = zip(found, entries, strict=False)
    return [message for message, _ in takewhile(lambda pair: pair[0].queue_offset == pair[1][0], pairs)]


class WaitingMessages:
    """Decoder of the messages of one topic.

    Args:
        topic: topic in which they wait, at most 127 bytes long.
        store_host: address of this broker; its family (IPv4, IPv6) may have changed since they were stored.
    """

    def __init__(self, topic: str, store_host: bytes) -> None:
        # The topic's length takes a byte.
        self._behind_body = 1 + len(topic.encode()) + _PROPERTIES_LENGTH
        self._store_flag = host_flags(b"", store_host)
        self._places: dict[bytes, Place | None] = {}

    def read(self, record: memoryview) -> WaitingMessage:
        """Decode a sound record of the topic; the body is a slice of the record."""
        head = RECORD_HEADS[record[SYS_FLAG_POSITION + 3] >> 4 & 3]
        fields = head.unpack_from(record)
        body_end = head.size + fields[14]
        message = MessageExtBrokerInner(
            "",
            0,
            record[head.size : body_end],
            bytes(record[body_end + self._behind_body :]),
            fields[4],
            fields[7] & ~STOREHOSTADDRESS_V6_FLAG | self._store_flag,
            fields[8],
            fields[9],
            fields[12],
        )
        return WaitingMessage(fields[5], fields[10], message)

    def place(self, properties: bytes) -> Place | None:
        """Return topic and queue of REAL_TOPIC and REAL_QID; ``None`` if the copy may not go there.

        The properties from REAL_TOPIC on are the same in many messages, and are cached.
        """
        at = properties.rfind(_REAL_TOPIC_NAME)
        end = properties[at:] if at == 0 or (at > 0 and properties[at - 1] == _PAIR_END) else b""
        if end in self._places:
            return self._places[end]
        found = real_place(properties)
        if found is not None and real_place(end) == found and len(end) <= _LONGEST_REMEMBERED:
            if len(self._places) >= _MOST_REMEMBERED:
                self._places.clear()
            self._places[end] = found
        return found
