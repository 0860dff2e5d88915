"""Columns of messages that a queue lists, for tables that show them."""

from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa

from rocketbroker.analytics.tables.queued_entries import QueuedEntries
from rocketbroker.analytics.tables.record_values import RecordValues
from rocketbroker.analytics.tables.table import constant

Maker = Callable[[], pa.Array]


def queued_columns(
    schema: pa.Schema, broker: str, entries: QueuedEntries, special: Mapping[str, Callable[[RecordValues], pa.Array]]
) -> dict[str, Maker]:
    """Return a maker for each column of ``schema``, from the queue entries or from their records.

    Args:
        schema: the schema of the table.
        broker: name of the broker.
        entries: the messages. Without records, columns that are not in the queue are null.
        special: makers of columns that ``messages`` does not have.
    """
    count = len(entries)
    known: dict[str, Maker] = {
        "broker": constant(broker, pa.string(), count),
        "topic": constant(entries.topic, pa.string(), count),
        "queue_id": constant(entries.queue_id, pa.int32(), count),
        "queue_offset": partial(pa.array, entries.queue_offsets),
        "physical_offset": partial(pa.array, entries.physical_offsets),
        "size": partial(pa.array, entries.sizes),
    }
    return {field.name: known.get(field.name) or _of_records(field, entries, special) for field in schema}


def _of_records(
    field: pa.Field, entries: QueuedEntries, special: Mapping[str, Callable[[RecordValues], pa.Array]]
) -> Maker:
    if entries.values is None:
        is_time = pa.types.is_timestamp(field.type)
        return partial(pa.nulls, len(entries), pa.int64() if is_time else field.type)
    if field.name in special:
        return partial(special[field.name], entries.values)
    return partial(entries.values.column, field.name)
