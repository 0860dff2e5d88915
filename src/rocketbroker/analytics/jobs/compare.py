"""Comparison of the messages of two stores: a master and its slave, or a store before and after."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType

from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA, STORED_PROPERTIES
from rocketbroker.analytics.jobs.scope import millis
from rocketbroker.common.errors import ConfigError

#: By mode: the columns that identify a message in both stores, and the columns that may legitimately differ.
KEYS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "physical": (("physical_offset",), ()),
    "queue": (
        ("topic", "queue_id", "queue_offset"),
        ("physical_offset", "msg_id", "prepared_transaction_offset"),
    ),
}
ONLY_IN_FIRST, ONLY_IN_SECOND, DIFFERENT = "only-in-first", "only-in-second", "different"
#: Columns of messages for ``as_stored``.
STORED_COLUMNS: Final = tuple(STORED_PROPERTIES if name == "properties" else name for name in MESSAGE_SCHEMA.names)
_SHOWN: Final = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp")


def as_stored(messages: DataFrame) -> DataFrame:
    """Return messages with the columns ``STORED_COLUMNS``; ``properties`` is the stored bytes."""
    return messages.withColumnRenamed(STORED_PROPERTIES, "properties")


def compare(first: DataFrame, second: DataFrame, by: str = "physical", ignored: tuple[str, ...] = ()) -> DataFrame:
    """Return the messages that only one of two stores has, and those that differ.

    Args:
        first: messages with all columns of ``message_schema.MESSAGE_SCHEMA``. Its ``properties`` may be those of
            ``as_stored``; as a map, neither their order nor differences in invalid UTF-8 count.
        second: messages of the other store, with the same columns.
        by: identity of a message: ``physical``, its offset in the commit log, or ``queue``, its topic, queue and queue
            offset; in that case offsets in the commit log, and ids that contain them, may differ.
        ignored: columns to leave out. ``broker`` is never compared.

    Returns:
        ``found`` (``only-in-first``, ``only-in-second`` or ``different``), ``where``, ``topic``, ``queue_id``,
        ``queue_offset``, ``physical_offset`` and ``store_timestamp`` (ms) of the first store that has it, and
        ``columns``, those that differ. For a message that one store lacks, ``where`` is ``before`` the first or
        ``behind`` the last message of that store (with ``queue``, of its queue in that store), ``within``, or
        ``no-queue`` if the store does not have the queue.

    Raises:
        ConfigError: ``by`` is not valid, or ``ignored`` names an unknown column.
    """
    if by not in KEYS:
        raise ConfigError(f"messages are compared by {' or '.join(KEYS)}, not by {by!r}")
    keys, unlike = KEYS[by]
    compared = [name for name in first.columns if name not in {"broker", *keys, *unlike, *ignored}]
    for name in ignored:
        if name not in first.columns:
            raise ConfigError(f"messages have no column {name!r}; their columns are {', '.join(first.columns)}")
    ours, theirs = _side(first, keys, compared, "a"), _side(second, keys, compared, "b")
    joined = ours.join(theirs, list(keys), "full")
    found = joined.withColumn("found", _found(compared)).where(F.col("found").isNotNull())
    return _placed(found, first, second, keys).select(
        "found",
        "where",
        *[name if name in keys else F.coalesce(f"a_{name}", f"b_{name}").alias(name) for name in _SHOWN],
        F.when(F.col("found") == DIFFERENT, F.array_compact(F.array(*map(_name_if_differs, compared)))).alias(
            "columns"
        ),
    )


def _side(messages: DataFrame, keys: tuple[str, ...], compared: list[str], prefix: str) -> DataFrame:
    """Return ``messages`` with column names of one side, and long values as SHA-256, to shuffle little data."""
    names = sorted({*compared, *_SHOWN} - set(keys))
    made = [_short(messages, name).alias(f"{prefix}_{name}") for name in names]
    return messages.select(*keys, F.lit(True).alias(f"{prefix}_there"), *made)


def _short(messages: DataFrame, name: str) -> Column:
    if name.endswith("_timestamp"):
        return millis(messages, name)
    if isinstance(messages.schema[name].dataType, BinaryType):
        return F.sha2(F.col(name), 256)
    if name == "properties":
        return F.sha2(F.to_json(F.array_sort(F.map_entries(name))), 256)
    return F.col(name)


def _differs(name: str) -> Column:
    return ~F.col(f"a_{name}").eqNullSafe(F.col(f"b_{name}"))


def _name_if_differs(name: str) -> Column:
    return F.when(_differs(name), F.lit(name))


def _found(compared: list[str]) -> Column:
    anything = F.lit(False)
    for name in compared:
        anything = anything | _differs(name)
    return (
        F.when(F.col("b_there").isNull(), ONLY_IN_FIRST)
        .when(F.col("a_there").isNull(), ONLY_IN_SECOND)
        .when(anything, DIFFERENT)
    )


def _placed(found: DataFrame, first: DataFrame, second: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Add the column ``where`` to ``found``."""
    *queue, offset = keys
    for side, messages in (("a", first), ("b", second)):
        bounds = messages.groupBy(*queue).agg(F.min(offset).alias(f"{side}_begin"), F.max(offset).alias(f"{side}_end"))
        found = found.join(F.broadcast(bounds), queue, "left") if queue else found.crossJoin(F.broadcast(bounds))
    return found.withColumn(
        "where",
        F.when(F.col("found") == ONLY_IN_FIRST, _place("b", offset)).when(
            F.col("found") == ONLY_IN_SECOND, _place("a", offset)
        ),
    )


def _place(side: str, offset: str) -> Column:
    begin, end = F.col(f"{side}_begin"), F.col(f"{side}_end")
    return (
        F.when(begin.isNull(), "no-queue")
        .when(F.col(offset) < begin, "before")
        .when(F.col(offset) > end, "behind")
        .otherwise("within")
    )
