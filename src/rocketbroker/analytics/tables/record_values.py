"""Columns of records selected from the commit log."""

from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.message_columns import message_batches
from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from rocketbroker.analytics.columns.property_columns import properties_text, property_values
from rocketbroker.analytics.files.commit_log_files import LogFile
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.codec.storefile.record_columns import Records

_DIGITS: Final = r"^[0-9]{1,18}$"
_MOST: Final = 10**18 - 1
#: The highest queue number (int32).
MOST_QUEUES: Final = (1 << 31) - 1


class RecordValues:
    """Columns of ``records`` of one store."""

    def __init__(self, records: Records, root: StoreRoot) -> None:
        self.records = records
        self.root = root

    def column(self, name: str) -> pa.Array:
        """Return a column of the table ``messages``; times in ms since 1970."""
        kind = pa.int64() if name.endswith("_timestamp") else MESSAGE_SCHEMA.field(name).type
        # Records may be from several files; no column here depends on the file.
        nowhere = LogFile(self.root, "", 0, 0, 0)
        (batch,) = message_batches(self.records, nowhere, pa.schema([pa.field(name, kind)]), DecodeReport())
        return batch.column(0)

    def property(self, name: str) -> pa.Array:
        """Return the value of a property in each record; null where it is missing."""
        return property_values(self._properties, name)

    def number(self, name: str, most: int = _MOST) -> pa.Array:
        """Return a property as int64; null where it is missing, or not a number from 0 to ``most``."""
        values = self.property(name)
        numbers = pc.if_else(pc.match_substring_regex(values, _DIGITS), values, None).cast(pa.int64())
        return pc.if_else(pc.less_equal(numbers, most), numbers, None)

    @cached_property
    def _properties(self) -> pa.Array:
        return properties_text(self.records)
