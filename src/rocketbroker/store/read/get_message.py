"""What a read of a queue found (GetMessageResult, GetMessageStatus)."""

from collections.abc import Callable
from enum import Enum

import msgspec

from rocketbroker.codec.message.expected_record import ExpectedRecord
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.message_filter import MessageFilter


class GetMessageStatus(Enum):
    """How a read ended (org.apache.rocketmq.store.GetMessageStatus)."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9


class Wanted(msgspec.Struct):
    """A filter for messages that are still to be read, and how many of those that it wants, and bytes of them."""

    message_filter: MessageFilter
    max_msgs: int
    max_bytes: int


class UncheckedMessages(msgspec.Struct):
    """Messages that may have come from the disk changed, or their queue's entries, and are still to be checked.

    ``matches`` says whether a tags code is wanted, ``None`` for all. With ``wanted`` fewer of them may be given.
    """

    queue: ConsumeQueueInterface
    matches: Callable[[int], bool] | None
    expected: list[ExpectedRecord]
    wanted: Wanted | None = None


class GetMessageResult(msgspec.Struct):
    """Where the messages lie: ``ranges`` of the CommitLog as (offset, size), neighbours joined; not their bytes.

    ``in_memory`` is false when they lie further back than ``accessMessageInMemoryMaxRatio`` says. With ``unchecked``
    only ``CheckedReader`` may read them, which leaves out those that are damaged.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    ranges: list[tuple[int, int]] = []
    message_count: int = 0
    total_size: int = 0
    in_memory: bool = True
    unchecked: UncheckedMessages | None = None
