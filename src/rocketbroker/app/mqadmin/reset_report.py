"""Report of the sub-commands that move a group."""

from collections.abc import Mapping

import msgspec

from rocketbroker.app.terminal import Column, Report, Table
from rocketbroker.codec.message.message_ext import MessageQueue


class QueueOffset(msgspec.Struct, rename="camel"):
    """Offset of a group in one queue."""

    broker_name: str
    queue_id: int
    offset: int


def queue_offsets(table: Mapping[MessageQueue, int]) -> list[QueueOffset]:
    """Return the offsets in order of broker and queue."""
    return [QueueOffset(queue.broker_name, queue.queue_id, offset) for queue, offset in sorted(table.items())]


def reset_report(group: str, topic: str, table: Mapping[MessageQueue, int]) -> Report:
    """Return the report, one row for each queue with its new offset."""
    rows = queue_offsets(table)
    cells = [[row.broker_name, str(row.queue_id), str(row.offset)] for row in rows]
    titles = ("#brokerName", "#queueId", "#offset")
    return Report({"group": group, "topic": topic, "queues": rows}, [Table([*map(Column, titles)], cells)])
