"""The options of the Spark format ``rocketmq_store``."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import msgspec

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_names import store_roots
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.log.split import SPLIT_SIZE
from rocketbroker.analytics.spark.offset_options import (
    OFFSET_OPTIONS,
    Bounds,
    check_order,
    ending_bounds,
    queue_offsets,
    starting_bounds,
    subscription,
)
from rocketbroker.analytics.spark.option_values import OptionValues
from rocketbroker.analytics.spark.queue_bounds import bounds_selection
from rocketbroker.analytics.spark.read_options import (
    DELAY_OPTION,
    PROPERTIES_OPTION,
    TriggerLimits,
    kept_properties,
    trigger_limits,
)
from rocketbroker.analytics.tables.table import Table, TableOptions
from rocketbroker.analytics.tables.table_reader import DEFAULT_TABLE, find_table
from rocketbroker.common.errors import ConfigError

_FORMAT: Final = "rocketmq_store"

_PLACES: Final = ("path", "paths", "stores")
# A catalog adds properties to the options of CREATE TABLE, this one always.
_PROVIDER: Final = "provider"
_NO_TABLE_OPTIONS: Final = (
    "Spark gives the options of CREATE TABLE to no Python source: write "
    "CREATE TEMPORARY VIEW ... USING rocketmq_store OPTIONS (path '...'), or give them in each query: "
    "SELECT ... FROM the table WITH (`path` = '...')"
)

#: Meaning of each option; names may be written in any case.
OPTIONS: Final = {
    "path": "stores, separated by commas: paths or addresses, each with NAME= before it if wanted",
    "paths": "stores as a JSON list, which load([...]) sets",
    "stores": "stores as a JSON list of pairs of name and place",
    "table": "table to read (messages)",
    "splitSize": "bytes that one task reads, such as 64m (64 MiB)",
    "selection": "messages to read, as `encode_selection` writes a Selection (all)",
    "fact": "rows of a job in place of messages, as the functions of jobs ask for them",
    "maxHashSlotNum": "slots of an index file, if they cannot be detected",
    "checkCrc": "true: corrupt_ranges includes messages whose body does not match its checksum (false)",
    **OFFSET_OPTIONS,
    "maxOffsetsPerTrigger": "most messages of the logs per micro-batch (no limit)",
    "maxBytesPerTrigger": "most bytes of the logs per micro-batch, such as 1g (no limit)",
    "minOffsetsPerTrigger": "messages of the logs for which a micro-batch waits (1)",
    **DELAY_OPTION,
    "minPartitions": "least number of tasks (1)",
    **PROPERTIES_OPTION,
    "failOnDataLoss": (
        "false: continue after log files that were removed unread, and start a queue at its first message if that "
        "follows its starting offset (true)"
    ),
}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a query; see ``OPTIONS``."""

    stores: tuple[StoreRoot, ...]
    table: Table
    table_options: TableOptions
    selection: Selection
    starts: Bounds
    ends: Bounds
    limits: TriggerLimits
    min_partitions: int
    properties: frozenset[str] | None
    fail_on_data_loss: bool
    fact: "FactRows | None"

    def selection_of(self, broker: str) -> Selection:
        """Return the selection of a broker's messages between the starts and ends of a batch."""
        return self.selection.and_(bounds_selection(self.starts, self.ends, broker))


@dataclass(frozen=True, slots=True)
class FactRows:
    """Rows of a fact, made of columns of messages.

    Attributes:
        name: key of ``facts.FACTS``.
        columns: columns of messages that are read for it.
        options: numbers that its function takes by name.
    """

    name: str
    columns: tuple[str, ...]
    options: dict[str, int]

    def encode(self) -> str:
        """Return the option ``fact``."""
        return msgspec.json.encode(self).decode()


def table_of(options: Mapping[str, str]) -> Table:
    """Return the table that ``options`` name; raise :class:`ConfigError` if a catalog would lose others."""
    if _PROVIDER in options:
        known = {name.lower() for name in OPTIONS}
        options = {name: value for name, value in options.items() if name.lower() in known}
        if set(map(str.lower, options)) - {"table"}:
            raise ConfigError(_NO_TABLE_OPTIONS)
    return find_table(source_values(options).text("table", DEFAULT_TABLE))


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse ``options``; raise :class:`ConfigError` for a missing store, or an unknown or invalid option."""
    given = source_values(options)
    crc, slots = given.flag("checkCrc"), given.number("maxHashSlotNum", 0)
    table, wanted = table_of(options), subscription(given)
    topics = Selection(topics=wanted.topics, topic_pattern=wanted.pattern)
    starts, ends = starting_bounds(given), ending_bounds(given)
    for name, bounds in (("startingOffsets", starts), ("endingOffsets", ends)):
        _check_subscribed(name, {each.topic for each in queue_offsets(bounds)}, topics)
    for name, bounds in (("startingTimestamp", starts), ("endingTimestamp", ends)):
        _check_subscribed(name, bounds.times, topics)
    check_order(starts, ends)
    if "minPartitions" in given and table.name != DEFAULT_TABLE:
        raise ConfigError(f"minPartitions is for the table {DEFAULT_TABLE}, not {table.name}; give splitSize")
    properties = kept_properties(given)
    if properties and "properties" not in table.fields:
        raise ConfigError(f"includeProperties: table {table.name} has no column properties")
    return SourceOptions(
        tuple(_stores(given)),
        table,
        TableOptions(given.bytes("splitSize", SPLIT_SIZE), slots, crc),
        selection=_selection(given).and_(topics),
        starts=starts,
        ends=ends,
        limits=trigger_limits(given),
        min_partitions=given.number("minPartitions", 1),
        properties=properties,
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        fact=given.json("fact", FactRows) if "fact" in given else None,
    )


def _check_subscribed(name: str, topics: Iterable[str], subscribed: Selection) -> None:
    for topic in topics:
        if not subscribed.has_topic(topic):
            raise ConfigError(
                f"{name} has the topic {topic}, which is not subscribed to; subscribe to it, or remove it"
            )


def source_values(options: Mapping[str, str]) -> OptionValues:
    """Return the given options of the format."""
    return OptionValues(_FORMAT, OPTIONS, options)


def encode_stores(stores: Sequence[StoreRoot]) -> str:
    """Return the option ``stores``."""
    return json.dumps([[store.broker, store.uri] for store in stores])


def encode_selection(selection: Selection) -> str:
    """Return the option ``selection``: a JSON object of the fields that are set."""
    given = {field.name: getattr(selection, field.name) for field in fields(selection)}
    found = {name: value for name, value in given.items() if value is not None and value is not False}
    return json.dumps(found, ensure_ascii=False, default=sorted)


def decode_selection(text: str) -> Selection:
    """Return the selection that ``encode_selection`` has written."""
    return _selection(source_values({"selection": text}))


def _selection(given: OptionValues) -> Selection:
    values = given.json("selection", dict[str, Any]) if "selection" in given else {}
    unknown = values.keys() - {field.name for field in fields(Selection)}
    if unknown:
        raise ConfigError(f"selection has unknown fields ({', '.join(sorted(unknown))}); write it by encode_selection")
    try:
        return msgspec.convert(values, Selection, str_keys=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"selection is {given.text('selection')!r}: {error}; write it by encode_selection") from error


def _stores(given: OptionValues) -> list[StoreRoot]:
    if sum(bool(given.text(name)) for name in _PLACES) > 1:
        raise ConfigError(f"stores are named twice; set only one of {', '.join(_PLACES)}, by load(...)")
    if given.text("path"):
        return store_roots(given.text("path"))
    # Addresses may hold credentials: errors do not repeat them.
    if "stores" in given:
        pairs = given.json("stores", list[tuple[str, str]], secret=True)
        return store_roots([StoreRoot(*pair) for pair in pairs])
    places = given.json("paths", list[str], secret=True) if "paths" in given else []
    if not places:
        raise ConfigError(
            f'format("{_FORMAT}") needs one or more stores; name them in load(...). In SQL: {_NO_TABLE_OPTIONS}'
        )
    return store_roots(places)
