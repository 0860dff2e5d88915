"""The columns of the table ``messages``. Corresponds to ``MessageExt``.

One row is one commit-log record, so a batch of a ``BatchCQ`` topic, a half message and a retry are one row each.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from rocketbroker.common.errors import ConfigError

TIME: Final = pa.timestamp("us", tz="UTC")
TEXTS: Final = pa.map_(pa.string(), pa.string())
#: Bounds of times that can be displayed, in ms since 1970: the years 1 to 9999, as in timestamps of Spark and Python. A
#: producer may send any int64, and a damaged record may contain any.
FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999


def field(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    """Return a column with its meaning as metadata."""
    return pa.field(name, kind, metadata={"comment": comment})


#: Name and type of every column in order; each field's metadata describes it.
MESSAGE_SCHEMA: Final = pa.schema(
    [
        field("broker", pa.string(), "name of the broker, as given by the caller"),
        field("topic", pa.string(), "topic under which the record is stored"),
        field("queue_id", pa.int32(), "queue within the topic"),
        field("queue_offset", pa.int64(), "number of the message in its queue"),
        field("physical_offset", pa.int64(), "byte offset of the record in the commit log"),
        field("store_timestamp", TIME, "when the broker stored it"),
        field("born_timestamp", TIME, "when the producer created it (producer's clock)"),
        field("born_host", pa.string(), "address:port of the producer"),
        field("store_host", pa.string(), "address:port of the broker"),
        field("msg_id", pa.string(), "offset message id: store host and physical offset"),
        field("uniq_key", pa.string(), "unique message id (property UNIQ_KEY)"),
        field("keys", pa.string(), "keys, separated by spaces (property KEYS)"),
        field("tags", pa.string(), "property TAGS"),
        field("flag", pa.int32(), "the application's flag"),
        field("sys_flag", pa.int32(), "bits of MessageSysFlag"),
        field("reconsume_times", pa.int32(), "failed consumptions so far"),
        field("prepared_transaction_offset", pa.int64(), "physical offset of the half message"),
        field("body", pa.binary(), "the body as stored: compressed if sys_flag & 1"),
        field("body_crc", pa.int32(), "CRC-32 of the stored body without its highest bit"),
        field("properties", TEXTS, "all properties by name"),
        field("size", pa.int32(), "bytes of the whole record"),
    ]
)

#: Columns that exist only on request.
STORED_PROPERTIES: Final = "stored_properties"
DECOMPRESSED_BODY: Final = "decompressed_body"
_ON_REQUEST: Final = (
    field(STORED_PROPERTIES, pa.binary(), "the properties as stored: name, byte 1, value, byte 2, and so on"),
    field(DECOMPRESSED_BODY, pa.binary(), "the body, decompressed if necessary; null if it cannot be decompressed"),
)
#: Name and type of every column, those on request included.
ALL_FIELDS: Final = {column.name: column for column in (*MESSAGE_SCHEMA, *_ON_REQUEST)}


def message_fields(*names: str) -> list[pa.Field]:
    """Return columns of ``messages``, for tables that have the same."""
    return [ALL_FIELDS[name] for name in names]


def select_fields(
    columns: Sequence[str] | None,
    table: str = "messages",
    known: Mapping[str, pa.Field] = ALL_FIELDS,
    default: pa.Schema = MESSAGE_SCHEMA,
) -> pa.Schema:
    """Return ``columns`` of a table in their order, ``default`` if None, without metadata.

    Names may be in any case, as in Spark; the schema has them as written.

    Raises:
        ConfigError: a column is unknown or repeated.
    """
    names = default.names if columns is None else columns
    for name in names:
        if name.lower() not in known:
            raise ConfigError(f"table {table} has no column {name!r}; its columns are {', '.join(known)}")
    if len(set(map(str.lower, names))) != len(names):
        raise ConfigError(f"a column is named twice in {', '.join(names)}")
    return pa.schema([known[name.lower()].remove_metadata().with_name(name) for name in names])


def known_names(schema: pa.Schema) -> pa.Schema:
    """Return a schema that was asked for with the names that tables have."""
    return pa.schema([each.with_name(each.name.lower()) for each in schema])


def rename_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of the columns ``known_names(schema)`` as one of ``schema``."""
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
