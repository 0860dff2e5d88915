"""Request, filter and result of a read from a queue (GetMessageResult, GetMessageStatus, MessageFilter)."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

import msgspec

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.raw_records import ExpectedRecord, PropertyBlocks
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface


class MessageFilter(Protocol):
    """Selects messages by their properties, on the event loop and on the threads that read old messages."""

    @property
    def is_quick(self) -> bool:
        """True if one message never takes it long; a filter that is not quick is for threads only."""

    def is_matched_by_commit_log(
        self, properties: PropertyBlocks, is_over: Callable[[], bool] | None = None
    ) -> list[bool]:
        """Return, for the properties of each message, true if it is wanted.

        The list ends at the first message for which it takes long while ``is_over`` returns true, and has one item at
        least.
        """


class GetMessageStatus(Enum):
    """Outcome of a read (org.apache.rocketmq.store.GetMessageStatus)."""

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


# Looking up a member in its enum takes 20 times as long.
_FOUND: Final = GetMessageStatus.FOUND


class GetMessageRequest(msgspec.Struct, frozen=True):
    """A read from a queue, starting at ``offset``: at least one message if there is any, then up to the limits.

    ``matches`` selects messages by tags code, ``message_filter`` by properties; at most one of them is set. With
    ``scans_ahead`` the filter may look at several times as many messages.
    """

    topic: str
    queue_id: int
    offset: int
    max_msgs: int
    max_bytes: int
    matches: Callable[[int], bool] | None = None
    message_filter: MessageFilter | None = None
    scans_ahead: bool = False


class GetMessageResult(msgspec.Struct, frozen=True):
    """Messages as they are stored, and the offset of the next read; ``buffers`` hold whole records, back to back."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    buffers: Sequence[ReadableBuffer] = ()
    message_count: int = 0
    total_size: int = 0


class PropertyFilter(NamedTuple):
    """A filter on properties and the limits of what it selects."""

    message_filter: MessageFilter
    max_msgs: int
    max_bytes: int


class UncheckedMessages(NamedTuple):
    """Messages that the disk may have changed, or their queue entries; checked when they are read.

    ``ranges`` of the CommitLog are offset and size, with neighbours joined. ``matches`` selects by the record's own
    tags, ``chosen_by`` by its properties.
    """

    queue: ConsumeQueueInterface
    expected: Sequence[ExpectedRecord]
    ranges: Sequence[tuple[int, int]]
    size: int
    matches: Callable[[int], bool] | None = None
    chosen_by: PropertyFilter | None = None


class Selection(NamedTuple):
    """Messages selected by their queue entries and not read yet: ``ranges`` of the CommitLog, or ``unchecked``."""

    status: GetMessageStatus
    next_begin_offset: int
    ranges: Sequence[tuple[int, int]] = ()
    message_count: int = 0
    unchecked: UncheckedMessages | None = None


def selected(
    request: GetMessageRequest, next_offset: int, ranges: Sequence[tuple[int, int]], count: int, *, was_removed: bool
) -> Selection:
    """Return the selection of ``count`` messages; ``was_removed`` if the log has lost the first ones."""
    if count:
        status = _FOUND
    elif next_offset == request.offset:
        # The rest of the file has no entries; the next ones are in the next file.
        status = GetMessageStatus.OFFSET_FOUND_NULL
    else:
        status = GetMessageStatus.MESSAGE_WAS_REMOVING if was_removed else GetMessageStatus.NO_MATCHED_MESSAGE
    return Selection(status, next_offset, ranges, count)


def add_range(ranges: list[tuple[int, int]], offset: int, size: int) -> None:
    """Append the place of a record; join it to the last range if that ends there."""
    if ranges and sum(ranges[-1]) == offset:
        ranges[-1] = (ranges[-1][0], ranges[-1][1] + size)
    else:
        ranges.append((offset, size))
