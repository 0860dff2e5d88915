"""The columns of the table ``messages``. Corresponds to ``MessageExt``.

One row is one commit-log record, so a batch of a ``BatchCQ`` topic, a half message and a retry are one row each.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from rocketbroker.common.errors import ConfigError

_TIME: Final = pa.timestamp("us", tz="UTC")
_MAP: Final = pa.map_(pa.string(), pa.string())

#: Name and type of every column in order; each field's metadata describes it.
MESSAGE_SCHEMA: Final = pa.schema(
    [
        pa.field("broker", pa.string(), metadata={"comment": "name of the broker, as given by the caller"}),
        pa.field("topic", pa.string(), metadata={"comment": "topic under which the record is stored"}),
        pa.field("queue_id", pa.int32(), metadata={"comment": "queue within the topic"}),
        pa.field("queue_offset", pa.int64(), metadata={"comment": "number of the message in its queue"}),
        pa.field("physical_offset", pa.int64(), metadata={"comment": "byte offset of the record in the commit log"}),
        pa.field("store_timestamp", _TIME, metadata={"comment": "when the broker stored it"}),
        pa.field("born_timestamp", _TIME, metadata={"comment": "when the producer created it (producer's clock)"}),
        pa.field("born_host", pa.string(), metadata={"comment": "address:port of the producer"}),
        pa.field("store_host", pa.string(), metadata={"comment": "address:port of the broker"}),
        pa.field("msg_id", pa.string(), metadata={"comment": "offset message id: store host and physical offset"}),
        pa.field("uniq_key", pa.string(), metadata={"comment": "unique message id (property UNIQ_KEY)"}),
        pa.field("keys", pa.string(), metadata={"comment": "keys, separated by spaces (property KEYS)"}),
        pa.field("tags", pa.string(), metadata={"comment": "property TAGS"}),
        pa.field("flag", pa.int32(), metadata={"comment": "the application's flag"}),
        pa.field("sys_flag", pa.int32(), metadata={"comment": "bits of MessageSysFlag"}),
        pa.field("reconsume_times", pa.int32(), metadata={"comment": "failed consumptions so far"}),
        pa.field(
            "prepared_transaction_offset", pa.int64(), metadata={"comment": "physical offset of the half message"}
        ),
        pa.field("body", pa.binary(), metadata={"comment": "the body as stored: compressed if sys_flag & 1"}),
        pa.field("body_crc", pa.int32(), metadata={"comment": "CRC-32 of the stored body without its highest bit"}),
        pa.field("properties", _MAP, metadata={"comment": "all properties by name"}),
        pa.field("size", pa.int32(), metadata={"comment": "bytes of the whole record"}),
    ]
)

#: Columns that exist only on request.
STORED_PROPERTIES: Final = "stored_properties"
DECOMPRESSED_BODY: Final = "decompressed_body"
#: Name and type of every column, those on request included.
ALL_FIELDS: Final = {field.name: field for field in MESSAGE_SCHEMA} | {
    STORED_PROPERTIES: pa.field(
        STORED_PROPERTIES,
        pa.binary(),
        metadata={"comment": "the properties as stored: name, byte 1, value, byte 2, and so on"},
    ),
    DECOMPRESSED_BODY: pa.field(
        DECOMPRESSED_BODY,
        pa.binary(),
        metadata={"comment": "the body, decompressed if necessary; null if it cannot be decompressed"},
    ),
}


def select_fields(columns: Sequence[str] | None) -> pa.Schema:
    """Return ``columns`` of ``ALL_FIELDS`` in this order, or ``MESSAGE_SCHEMA``; reject others with ConfigError."""
    names = MESSAGE_SCHEMA.names if columns is None else columns
    check_column_names(names)
    return pa.schema([ALL_FIELDS[name].remove_metadata() for name in names])


def check_column_names(names: Sequence[str]) -> None:
    """Raise :class:`ConfigError` if one of ``names`` is not a column or is repeated."""
    for name in names:
        if name not in ALL_FIELDS:
            raise ConfigError(f"messages have no column {name!r}; there are {', '.join(ALL_FIELDS)}")
    if len(set(names)) != len(names):
        raise ConfigError(f"a column is named twice in {', '.join(names)}")
