"""Number of messages that a filter by tags selects, from a sample (ConsumeQueue.estimateMessageCount)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.store.queue.batch_consume_queue import BatchConsumeQueue
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface

if TYPE_CHECKING:
    import numpy as np

    # Tags codes of records, and the messages of each that count.
    Columns = Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]

# Entries that are compared in one call of numpy, in about 1 ms: the event loop may go on between two calls.
_AT_ONCE: Final = 20_000


class TaggedRange(NamedTuple):
    """Messages of a queue from ``begin`` to before ``end``, of which those with one of the tags codes count."""

    topic: str
    queue_id: int
    begin: int
    end: int
    tag_codes: frozenset[int]


def estimate_message_count(queue: ConsumeQueueInterface, wanted: TaggedRange, config: MessageStoreConfig) -> int:
    """Return about how many messages of a range match (blocks).

    All entries of a short range are read. Of a longer one it is the first ``maxConsumeQueueScan`` entries, or fewer if
    more than ``sampleCountThreshold`` of them match, and the rest is taken to match as often. In a queue of batches
    both are numbers of records. As in RocketMQ, a range that begins before the first message of the queue is moved
    there with its length, and a sample stands for the whole length, also where the queue has fewer messages left.
    """
    import numpy as np

    length = wanted.end - wanted.begin
    begin = max(wanted.begin, queue.min_offset)
    end = min(begin + length, queue.max_offset)
    if begin >= end:
        return 0
    most, threshold = config.max_consume_queue_scan, config.sample_count_threshold
    codes = np.fromiter(wanted.tag_codes, np.int64, len(wanted.tag_codes))
    records = hits = seen = matched = 0
    if isinstance(queue, BatchConsumeQueue):
        columns = _batches(queue, begin, end, most)
    else:
        columns = _entries(queue, begin, end, most)
    for tags_codes, messages in columns:
        found = np.flatnonzero(np.isin(tags_codes, codes))
        number = len(messages)
        if hits + len(found) > threshold:
            found = found[: threshold + 1 - hits]
            number = int(found[-1]) + 1
        records += number
        hits += len(found)
        seen += int(messages[:number].sum())
        matched += int(messages[found].sum())
        if hits > threshold:
            break
    return matched * length // seen if seen and (records >= most or hits > threshold) else matched


def _entries(queue: ConsumeQueueInterface, begin: int, end: int, most: int) -> "Columns":
    """Yield the tags codes of entries, and 1 message for each."""
    import numpy as np

    from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY

    end = min(end, begin + most)
    while begin < end and (entries := queue.entry_bytes(begin, min(end - begin, _AT_ONCE))):  # of one file
        tags_codes = np.frombuffer(entries, CONSUME_QUEUE_ENTRY)["tags_code"]
        begin += len(tags_codes)
        yield tags_codes, np.ones(len(tags_codes), np.int64)


def _batches(queue: BatchConsumeQueue, begin: int, end: int, most: int) -> "Columns":
    """Yield the tags codes of records, and the messages that each has in the range."""
    import numpy as np

    from rocketbroker.codec.storefile.dtypes import BATCH_CONSUME_QUEUE_ENTRY

    for entries in queue.batch_bytes(begin, min(end - begin, most)):
        whole = np.frombuffer(entries, BATCH_CONSUME_QUEUE_ENTRY)
        for first in range(0, len(whole), _AT_ONCE):
            some = whole[first : first + _AT_ONCE]
            bases = some["msg_base_offset"].astype(np.int64)
            messages = np.minimum(bases + some["batch_size"], end) - np.maximum(bases, begin)
            beyond = np.flatnonzero(bases >= end)
            count = int(beyond[0]) if len(beyond) else len(some)
            yield some["tags_code"][:count], np.maximum(messages[:count], 0)
            if count < len(some):
                return
