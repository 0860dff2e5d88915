"""Ranges of queues: where a query begins and ends in each, how tasks and micro-batches share them, its progress."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from rocketbroker.codec.message.message_ext import MessageQueue

#: Next offset by broker, topic and queue, as a checkpoint has it.
Progress = dict[str, dict[str, dict[str, int]]]
#: Offset by queue.
Offsets = Mapping[MessageQueue, int]


def progress_of(offsets: Offsets) -> Progress:
    """Return offsets as a checkpoint has them."""
    found: Progress = {}
    for queue in sorted(offsets):
        topics = found.setdefault(queue.broker_name, {})
        topics.setdefault(queue.topic, {})[str(queue.queue_id)] = offsets[queue]
    return found


def offsets_of(progress: Mapping[str, Mapping[str, Mapping[Any, int]]]) -> dict[MessageQueue, int]:
    """Return the offsets in a checkpoint, or in an option, by queue."""
    return {
        MessageQueue(topic, broker, int(queue_id)): offset
        for broker, topics in progress.items()
        for topic, queues in topics.items()
        for queue_id, offset in queues.items()
    }


@dataclass
class QueuePartition(InputPartition):
    """Offsets ``low`` to before ``high`` of a queue, which one task reads."""

    queue: MessageQueue
    low: int
    high: int


def partitions_of(ranges: Iterable[tuple[MessageQueue, int, int]], at_least: int) -> list[QueuePartition]:
    """Return the ranges that have messages; longer ones in parts, so that ``at_least`` tasks share the messages.

    Each queue has parts in proportion to its messages, as in Spark's Kafka source.
    """
    found = [QueuePartition(*each) for each in ranges if each[1] < each[2]]
    total = sum(each.high - each.low for each in found)
    if len(found) >= at_least:
        return found
    parts = []
    for each in found:
        size = each.high - each.low
        count = min(max(-(-size * at_least // total), 1), size)
        cuts = [each.low + size * number // count for number in range(count + 1)]
        parts += [QueuePartition(each.queue, *cuts[number : number + 2]) for number in range(count)]
    return parts


def limit_ends(starts: Offsets, ends: Offsets, most: int) -> dict[MessageQueue, int]:
    """Return the ends of a micro-batch of ``most`` messages: each queue has a share in proportion to its backlog.

    A queue with messages has a share of one at least, lest busy ones keep it waiting.
    """
    backlogs = {queue: ends[queue] - starts[queue] for queue in ends}
    total = sum(backlogs.values())
    if total <= most:
        return dict(ends)
    return {queue: starts[queue] + min(max(backlog * most // total, 1), backlog) for queue, backlog in backlogs.items()}
