"""The table ``messages``: the records of the commit log."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.message_schema import ALL_FIELDS, MESSAGE_SCHEMA
from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.message_reader import read_split
from rocketbroker.analytics.log.split import Split, plan_splits
from rocketbroker.analytics.tables.table import Table, TableOptions, select_by


class MessagesTable(Table):
    """One row per record."""

    name = "messages"
    comment = "a record of the commit log, as it is stored"
    schema = MESSAGE_SCHEMA
    selects = select_by(
        "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "keys", "uniq_key", "tags"
    )

    @property
    def fields(self) -> Mapping[str, pa.Field]:
        return ALL_FIELDS

    def plan(self, stores: Sequence[StoreRoot], selection: Selection, options: TableOptions) -> list[Split]:
        return plan_splits(stores, options.split_size, selection) if stores else []

    def read(self, part: Split, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a split; unreadable ranges are logged, and listed in ``corrupt_ranges``."""
        yield from read_split(part, schema, DecodeReport(), selection=selection)
