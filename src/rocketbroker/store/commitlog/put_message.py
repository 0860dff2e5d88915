"""Messages to store, and the results of storing them (MessageExtBrokerInner, PutMessageResult, PutMessageStatus)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.message.message_properties import FoundProperties

if TYPE_CHECKING:
    from rocketbroker.codec.message.alike_messages import AlikeMessages


class MessageExtBrokerInner(msgspec.Struct, gc=False):
    """A message to store. Hosts are 4 or 16 address bytes and an int32 port, times are ms."""

    topic: str
    queue_id: int
    body: ReadableBuffer
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    # Result of ``find_properties``, if the caller has it.
    found: FoundProperties | None = None


class MessageRun(msgspec.Struct, gc=False):
    """Messages of one topic that came together: fields that differ as columns, the others once."""

    topic: str
    queue_ids: Sequence[int]
    bodies: Sequence[ReadableBuffer]
    properties: Sequence[bytes]
    born_timestamps: Sequence[int]
    found: Sequence[FoundProperties]
    flag: int
    sys_flag: int
    born_host: bytes
    reconsume_times: int


class BatchRun(NamedTuple):
    """Batches of one topic that came together: fields that differ as columns, one value for each batch.

    ``counts`` are the numbers of messages; ``messages`` are those of all batches.
    """

    topic: str
    queue_ids: Sequence[int]
    counts: Sequence[int]
    born_timestamps: Sequence[int]
    messages: AlikeMessages
    sys_flag: int
    born_host: bytes
    reconsume_times: int


class PutMessageStatus(Enum):
    """Outcome of a put and of its acknowledgement (org.apache.rocketmq.store.PutMessageStatus).

    RocketMQ has SERVICE_NOT_AVAILABLE for the causes 4 to 8, 10, 11 and 14. Outcomes of an acknowledgement begin at 12;
    a higher one is more severe.
    """

    PUT_OK = 0
    MESSAGE_ILLEGAL = 1
    PROPERTIES_SIZE_EXCEEDED = 2
    # A file or its blocks could not be created, for another reason than a full disk.
    CREATE_MAPPED_FILE_FAILED = 3
    DISK_FULL = 4
    # A sync failed, and the unsynced data has to be rewritten.
    READ_ONLY = 5
    # Messages are stored that could not be entered into their queues.
    NOT_DISPATCHED = 6
    NOT_STARTED = 7
    SHUTTING_DOWN = 8
    # The writer waited for blocks of the log for longer than osPageCacheBusyTimeOutMills.
    OS_PAGE_CACHE_BUSY = 9
    TOPIC_BEING_DELETED = 10
    # The store copies its master's log.
    SLAVE = 11
    # The message is stored, but a sync failed or took longer than syncFlushTimeout.
    FLUSH_DISK_TIMEOUT = 12
    # The message is stored, but not enough slaves have reported it within slaveTimeout.
    FLUSH_SLAVE_TIMEOUT = 13
    # The message is stored, but the topic that it created could not be written.
    TOPIC_NOT_CREATED = 14


#: Outcomes of stored messages whose places in their queues are right nevertheless.
STORED: Final = frozenset({PutMessageStatus.FLUSH_DISK_TIMEOUT, PutMessageStatus.FLUSH_SLAVE_TIMEOUT})
#: Outcomes that no later try will change: a service that stores messages skips such a message.
PERMANENT_FAILURES: Final = frozenset({PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED})


class PutMessageResult(msgspec.Struct, gc=False):
    """Result of a put. For several messages, offsets are those of the first one; ``size`` covers all records."""

    status: PutMessageStatus
    physical_offset: int = -1
    queue_offset: int = -1
    store_timestamp: int = 0
    size: int = 0
    reason: str = ""
    # Physical offsets of all messages of a batch or a run.
    physical_offsets: Sequence[int] = ()
    # Queue offsets of all messages of a run, or of the first one of each batch of a run.
    queue_offsets: Sequence[int] = ()

    @property
    def sends(self) -> int:
        """Number of sends acknowledged together: messages of a run, or batches."""
        return len(self.queue_offsets) or 1
