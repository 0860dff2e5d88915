"""Where records of the log seem to begin, as the queues say: it spares a walk over many records the way from one to the
next. Apart from ``commit_log_walker.py`` since importing numpy takes longer than a broker's start may.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from rocketbroker.codec.byte_columns import gather
from rocketbroker.codec.message.message_encoder import MESSAGE_MAGIC_CODE_V1, MESSAGE_MAGIC_CODE_V2
from rocketbroker.codec.storefile.consume_queue_layout import CQ_STORE_UNIT_SIZE
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY
from rocketbroker.codec.storefile.record_search import MIN_RECORD_SIZE
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface

Positions = npt.NDArray[np.int64]


class RecordHints:
    """CommitLog offsets at which queues have messages, ascending. Nothing is taken from them unseen.

    Args:
        offsets: the offsets.
    """

    def __init__(self, offsets: Positions) -> None:
        self._offsets = offsets

    def chain(self, offset: int, data: bytes) -> tuple[list[int], int] | None:
        """Where records begin in bytes of the log that follow each other from their begin on, and where the last ends.

        ``None`` when the queues do not know of one at the begin; there may be more records than they know of.

        Args:
            offset: CommitLog offset of the first byte.
            data: the bytes.
        """
        last = len(data) - MIN_RECORD_SIZE
        begin, stop = np.searchsorted(self._offsets, (offset, offset + last + 1)).tolist()
        starts = self._offsets[begin:stop] - offset
        if last < 0 or not len(starts) or starts[0]:
            return None
        buffer = np.frombuffer(data, np.uint8)
        sizes = gather(buffer, ">i4", starts).astype(np.int64)
        magic = gather(buffer, ">u4", starts + 4)
        seems = (sizes >= MIN_RECORD_SIZE) & ((magic == MESSAGE_MAGIC_CODE_V1) | (magic == MESSAGE_MAGIC_CODE_V2))
        ends = starts + sizes
        seems &= ends <= len(data)
        seems[1:] &= ends[:-1] == starts[1:]
        count = len(starts) if seems.all() else int(seems.argmin())
        return (starts[:count].tolist(), int(ends[count - 1])) if count else None


def hints_of(firsts: Mapping[ConsumeQueueInterface, int]) -> RecordHints:
    """What queues know of the log, each from a queue offset of its own on."""
    offsets = np.concatenate([_offsets_of(queue, first) for queue, first in firsts.items()])
    # Each queue's are in order: merging them is quick.
    offsets.sort(kind="stable")
    return RecordHints(offsets)


def _offsets_of(queue: ConsumeQueueInterface, first: int) -> Positions:
    """CommitLog offsets in the entries of a queue, by reading."""
    parts = [np.empty(0, np.int64)]
    for file in queue.queue.files:
        begin = max(first * CQ_STORE_UNIT_SIZE - file.file_from_offset, 0)
        end = min(queue.max_offset * CQ_STORE_UNIT_SIZE - file.file_from_offset, file.file_size)
        if begin < end:
            entries = np.frombuffer(file.read_at(begin, end - begin), CONSUME_QUEUE_ENTRY)
            parts.append(entries["commit_log_offset"].astype(np.int64))
    return np.concatenate(parts)
