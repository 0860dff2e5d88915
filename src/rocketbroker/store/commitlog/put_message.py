"""A put: messages to store, results, standing reasons to reject them, and the waits before they are acknowledged.

The counterpart of MessageExtBrokerInner, PutMessageResult and PutMessageStatus, of DefaultMessageStore.checkStoreStatus
and CommitLog.handleDiskFlushAndHA.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from rocketbroker.codec.java_types import ReadableBuffer
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

    RocketMQ has SERVICE_NOT_AVAILABLE for the causes 4 to 8, 10, 11 and 15. Outcomes of an acknowledgement begin at 13;
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
    # The message needs more brokers than are in sync.
    IN_SYNC_REPLICAS_NOT_ENOUGH = 12
    # The message is stored, but a sync failed or took longer than syncFlushTimeout.
    FLUSH_DISK_TIMEOUT = 13
    # The message is stored, but not enough slaves have reported it within slaveTimeout.
    FLUSH_SLAVE_TIMEOUT = 14
    # The message is stored, but the topic that it created could not be written.
    TOPIC_NOT_CREATED = 15


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


class Refusal(Enum):
    """Standing reasons to reject writes, most severe first; the part that sets one clears it."""

    SHUTTING_DOWN = PutMessageStatus.SHUTTING_DOWN
    NOT_STARTED = PutMessageStatus.NOT_STARTED
    SLAVE = PutMessageStatus.SLAVE
    READ_ONLY = PutMessageStatus.READ_ONLY
    DISK_FULL = PutMessageStatus.DISK_FULL
    NOT_DISPATCHED = PutMessageStatus.NOT_DISPATCHED


class StandingRefusals:
    """Current reasons to reject every put; each has an owner that sets and clears it, from any thread.

    Attributes:
        current: put result for the most severe reason, ``None`` while messages are accepted.
    """

    __slots__ = ("_lock", "_reasons", "current")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: dict[Refusal, str] = {}
        self.current: PutMessageResult | None = None

    def set(self, refusal: Refusal, reason: str) -> None:
        """Reject every put from now on; ``reason`` names the cause, the measured value and the setting to change."""
        with self._lock:
            self._reasons[refusal] = reason
            self._choose()

    def clear(self, refusal: Refusal) -> None:
        """Clear a reason; puts are accepted again once none is left."""
        with self._lock:
            self._reasons.pop(refusal, None)
            self._choose()

    def reason(self, refusal: Refusal) -> str:
        """Return the text of a reason, empty while it is not set."""
        return self._reasons.get(refusal, "")

    def only(self, refusal: Refusal) -> bool:
        """Return true if this is the only reason set."""
        return self._reasons.keys() == {refusal}

    def _choose(self) -> None:
        worst = next((refusal for refusal in Refusal if refusal in self._reasons), None)
        self.current = None if worst is None else PutMessageResult(worst.value, reason=self._reasons[worst])


class Acknowledgement(NamedTuple):
    """Outcome of a wait; ``reason`` says why the message is not acknowledged, empty otherwise."""

    status: PutMessageStatus
    reason: str = ""

    @property
    def ok(self) -> bool:
        """True if the message is acknowledged."""
        return self.status is PutMessageStatus.PUT_OK


ACKNOWLEDGED: Final = Acknowledgement(PutMessageStatus.PUT_OK)
_LATE: Final = Acknowledgement(PutMessageStatus.FLUSH_DISK_TIMEOUT, "the message was not acknowledged in time")

#: Takes the outcome; called once, on the event loop.
OnAcknowledged = Callable[[Acknowledgement], None]
#: Starts a wait.
Wait = Callable[[OnAcknowledged], None]
#: Starts a wait for a stored message.
PutWait = Callable[[PutMessageResult, OnAcknowledged], None]


#: Parts of the wait for a stored message, as a log line of a slow send names them.
SYNCED: Final = "synced"
REPLICATED: Final = "replicated"
TOPIC: Final = "topic written"


class StoredWait:
    """Wait for a stored message (``Wait``), which knows when each of its parts ended.

    Args:
        waits: name and wait of each part.
    """

    __slots__ = ("_ends", "_waits")

    def __init__(self, waits: Sequence[tuple[str, Wait]]) -> None:
        self._waits = waits
        self._ends: list[tuple[str, float]] = []

    def __call__(self, tell: OnAcknowledged) -> None:
        if len(self._waits) == 1:
            self._waits[0][1](tell)
        else:
            when_all([partial(self._start, part, wait) for part, wait in self._waits], tell)

    def _start(self, part: str, wait: Wait, tell: OnAcknowledged) -> None:
        wait(partial(self._ended, part, tell))

    def _ended(self, part: str, tell: OnAcknowledged, outcome: Acknowledgement) -> None:
        self._ends.append((part, monotonic()))
        tell(outcome)

    def ends(self, now: float) -> Sequence[tuple[str, float]]:
        """Return each part and the monotonic time at which it ended, for a wait that ended now."""
        return self._ends or [(part, now) for part, _ in self._waits]


class Acknowledgements:
    """Combines the waits of each message between its put and its acknowledgement (CommitLog.handleDiskFlushAndHA).

    A wait starts with a call and ends with a callback on the event loop. Callbacks instead of tasks: under SYNC_FLUSH
    there is one wait per send.

    Args:
        flushed: the wait for the disk (SYNC_FLUSH), ``None`` under ASYNC_FLUSH.
        replicated: the wait for slaves (SYNC_MASTER), ``None`` in other roles.

    Attributes:
        required: true if there are any.
        on_slaves: true if there is the wait for slaves.
        shortage: returns the rejection of a message that waits for slaves, before it is stored, while too few are in
            sync; ``None`` to store each and wait.
    """

    def __init__(self, flushed: PutWait | None = None, replicated: PutWait | None = None) -> None:
        self._here = () if flushed is None else ((SYNCED, flushed),)
        self._everywhere = self._here if replicated is None else (*self._here, (REPLICATED, replicated))
        self.required = bool(self._everywhere)
        self.on_slaves = replicated is not None
        self.shortage: Callable[[], PutMessageResult | None] | None = None

    def wait_for(self, result: PutMessageResult, also: Sequence[Wait] = (), *, on_slaves: bool = False) -> StoredWait:
        """Return the wait for a stored message, with the most severe outcome.

        Args:
            on_slaves: true to wait for slaves too. As in RocketMQ, the copies that the broker makes wait for none.
        """
        waits = self._everywhere if on_slaves else self._here
        return StoredWait([*((part, partial(wait, result)) for part, wait in waits), *((TOPIC, wait) for wait in also)])

    def acknowledged(self, result: PutMessageResult, also: Sequence[Wait] = ()) -> asyncio.Future[Acknowledgement]:
        """Start ``wait_for`` and return its outcome."""
        return outcome_of(self.wait_for(result, also))


def outcome_of(wait: Wait) -> asyncio.Future[Acknowledgement]:
    """Start a wait and return its outcome; cancelling the future drops the outcome."""
    future: asyncio.Future[Acknowledgement] = asyncio.get_running_loop().create_future()
    wait(lambda outcome: None if future.done() else future.set_result(outcome))
    return future


def when_all(
    waits: Sequence[Wait], tell: OnAcknowledged, timeout_s: float = inf, late: Acknowledgement = _LATE
) -> None:
    """Call ``tell`` with the most severe outcome once all waits have ended.

    Args:
        late: outcome of waits that have not ended by then.
    """
    if waits:
        joined = _JoinedWaits(len(waits), tell, timeout_s, late)
        for wait in waits:
            wait(joined.ended)
    else:
        tell(ACKNOWLEDGED)


class _JoinedWaits:
    """Counts the waits of one message that have not ended."""

    def __init__(self, count: int, tell: OnAcknowledged, timeout_s: float, late: Acknowledgement) -> None:
        self._left = count
        self._tell = tell
        self._worst = ACKNOWLEDGED
        self._deadline = None
        if timeout_s < inf:
            self._deadline = asyncio.get_running_loop().call_later(timeout_s, self._time_out, late)

    def ended(self, outcome: Acknowledgement) -> None:
        if not self._left:
            return  # too late
        self._worst = max(self._worst, outcome, key=_severity)
        self._left -= 1
        if not self._left:
            if self._deadline is not None:
                self._deadline.cancel()
            self._tell(self._worst)

    def _time_out(self, late: Acknowledgement) -> None:
        self._left = 0
        self._tell(max(self._worst, late, key=_severity))


def _severity(outcome: Acknowledgement) -> int:
    return outcome.status.value
