"""Messages that wait in a system topic, and delivery of their copies to the topics that they name.

Delay levels and the timer share it: each decides what is due and keeps its own progress.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.message_copy import REAL_TOPIC, Place, real_place
from rocketbroker.broker.message_meters import MessageMeters
from rocketbroker.codec.message.message_const import STOREHOSTADDRESS_V6_FLAG, host_flags
from rocketbroker.codec.message.message_decoder import RECORD_HEADS, SYS_FLAG_POSITION
from rocketbroker.codec.message.raw_records import ExpectedRecord
from rocketbroker.store.commitlog.put_message import (
    PERMANENT_FAILURES,
    MessageExtBrokerInner,
    PutMessageResult,
    PutMessageStatus,
)
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.message_fetcher import EntryReader

log = logging.getLogger(__name__)

#: Stores a copy, or sends it to another master; in that case its result has to be awaited.
Put = Callable[[MessageExtBrokerInner], PutMessageResult | Awaitable[PutMessageResult]]

_REAL_TOPIC_NAME: Final = REAL_TOPIC + b"\x01"
_PAIR_END: Final = 2
# Lengths of topic and properties, which a record has between its body and its properties with the topic itself.
_LENGTHS: Final = 1 + 2
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


class WaitingMessages:
    """Decoder of sound records of system topics, whose names are at most 127 bytes long.

    It does in one step what ``decode_record`` and ``copy_message`` do in general, because all messages due at once pass
    through it.

    Args:
        store_host: address of this broker; its family (IPv4, IPv6) may have changed since they were stored.
    """

    def __init__(self, store_host: bytes) -> None:
        self._store_flag = host_flags(b"", store_host)
        self._places: dict[bytes, Place | None] = {}

    def read(self, record: memoryview) -> WaitingMessage:
        """Decode a record; the body is a slice of it."""
        head = RECORD_HEADS[record[SYS_FLAG_POSITION + 3] >> 4 & 3]
        fields = head.unpack_from(record)
        body_end = head.size + fields[14]
        message = MessageExtBrokerInner(
            "",
            0,
            record[head.size : body_end],
            bytes(record[body_end + _LENGTHS + record[body_end] :]),
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


class CopyDelivery:
    """Reads waiting messages, and stores their copies here or, at a slave that acts as master, at another master.

    The progress of such a slave returns to its own master, whose log may be whole. So it passes no message that the
    slave lacks or has damaged, while a master logs such a message and goes on.

    Args:
        put: takes the copies for another master; by default the appender does.
        may_deliver: returns false while another broker may deliver the same messages.

    Attributes:
        escapes: true if the copies go to another master.
        waiting: decodes records.
    """

    def __init__(
        self,
        appender: MessageAppender,
        entry_reader: EntryReader,
        stats: BrokerStatsManager,
        store_host: bytes,
        *,
        put: Put | None = None,
        may_deliver: Callable[[], bool] = lambda: True,
    ) -> None:
        self._appender = appender
        self._stats = stats
        self.entry_reader = entry_reader
        self.escapes = put is not None
        self._put = put
        self.may_deliver = may_deliver
        self.waiting = WaitingMessages(store_host)

    @property
    def put(self) -> Put:
        """Function that stores a copy, or sends it."""
        return self._put or self._appender.put_copy

    async def read(
        self, queue: ConsumeQueueInterface, entries: Sequence[ExpectedRecord], lost: str
    ) -> tuple[list[WaitingMessage], int | None]:
        """Return the sound messages that entries name.

        For another master, return those before the first missing one, and its queue offset.

        Args:
            queue: the queue in which they wait.
            entries: some of its entries.
            lost: text with ``%d`` for the number of lost messages, for the log of a broker that goes on without them.

        Raises:
            StoreError: The disk cannot be read.
        """
        found = [self.waiting.read(record) for record in await self.entry_reader.records(queue, entries)]
        if len(found) == len(entries):
            return found, None
        if not self.escapes:
            log.error("%s are damaged or missing", lost % (len(entries) - len(found)))
            return found, None
        pairs = zip(found, entries, strict=False)
        found = [message for message, _ in takewhile(lambda pair: pair[0].queue_offset == pair[1][0], pairs)]
        return found, entries[len(found)][0]

    @property
    def meters(self) -> MessageMeters | None:
        """Counts for metrics, ``None`` while nobody asks for them."""
        return self._stats.meters

    def count(self, topic: str, result: PutMessageResult) -> None:
        """Count a stored copy in the statistics of its topic, but not one that another master has."""
        if result.size:
            self._stats.topic_put(topic).add(1, result.size)

    # A queue that cannot enter its next file stays so until somebody raises a limit, and the messages behind must not
    # wait for that. So the message goes to its system topic once more with a later time, and survives a restart there
    # like any other. The caller's delay is long, so that few copies are stored however long it takes. Where the log has
    # no room either, this put fails too, and nothing is lost.
    def may_postpone(self, result: PutMessageResult) -> bool:
        """Return true if the queue of a copy alone has no room, so that the message may wait again."""
        return result.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED and not self.escapes

    def store_again(self, message: MessageExtBrokerInner) -> bool:
        """Store a postponed message in its system topic; return false to retry it in its place."""
        return self._appender.put_copy(message).status is PutMessageStatus.PUT_OK

    def dispatch(self) -> None:
        """Make the stored copies readable."""
        self._appender.dispatch()


def is_settled(result: PutMessageResult) -> bool:
    """Return true if a message need not be retried: it is stored, or no retry would store it."""
    return result.status is PutMessageStatus.PUT_OK or result.status in PERMANENT_FAILURES
