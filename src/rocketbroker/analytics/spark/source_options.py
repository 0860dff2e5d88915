"""The options of the Spark format ``rocketmq_store``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import msgspec

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_root import StoreRoot, store_roots
from rocketbroker.analytics.log.split import SPLIT_SIZE
from rocketbroker.analytics.spark.option_values import OptionValues
from rocketbroker.analytics.tables.table import Table, TableOptions
from rocketbroker.analytics.tables.table_reader import DEFAULT_TABLE, find_table
from rocketbroker.common.errors import ConfigError

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_FORMAT: Final = "rocketmq_store"

_PLACES: Final = ("path", "paths", "stores")

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
    "startingOffsets": "earliest or latest: start of a new streaming query (earliest)",
    "maxBytesPerTrigger": "most bytes of the log per micro-batch, such as 1g (no limit)",
    "failOnDataLoss": "false: if log files were removed unread, a streaming query logs it and continues (true)",
}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a query; see ``OPTIONS``."""

    stores: tuple[StoreRoot, ...]
    table: Table
    table_options: TableOptions
    selection: Selection
    starting_offsets: str
    max_bytes_per_trigger: int | None
    fail_on_data_loss: bool
    fact: "FactRows | None"


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


def refuse_stream_options(options: Mapping[str, str]) -> None:
    """Raise :class:`ConfigError` for an option that has no effect on a batch."""
    for name, value in _values(options).given.items():
        if name == "maxBytesPerTrigger" or (name == "startingOffsets" and value.lower() != EARLIEST):
            raise ConfigError(f"{name} is {value!r}: it is for readStream; limit a batch by the option selection")


def table_of(options: Mapping[str, str]) -> Table:
    """Return the table that ``options`` name."""
    return find_table(_values(options).text("table", DEFAULT_TABLE))


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse ``options``; raise :class:`ConfigError` for a missing store, or an unknown or invalid option."""
    given = _values(options)
    crc, slots = given.flag("checkCrc"), given.number("maxHashSlotNum", 0)
    return SourceOptions(
        tuple(_stores(given)),
        table_of(options),
        TableOptions(given.bytes("splitSize", SPLIT_SIZE), slots, crc),
        selection=_selection(given),
        starting_offsets=given.one_of("startingOffsets", (EARLIEST, LATEST), EARLIEST),
        max_bytes_per_trigger=given.bytes("maxBytesPerTrigger", 0) or None,
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        fact=given.json("fact", FactRows) if "fact" in given else None,
    )


def _values(options: Mapping[str, str]) -> OptionValues:
    return OptionValues(_FORMAT, OPTIONS, options)


def encode_stores(stores: Sequence[StoreRoot]) -> str:
    """Return the option ``stores``."""
    return json.dumps([[store.broker, store.uri] for store in stores])


def encode_selection(selection: Selection) -> str:
    """Return the option ``selection``: a JSON object of the fields that are set."""
    given = {field.name: getattr(selection, field.name) for field in fields(selection)}
    found = {name: value for name, value in given.items() if value is not None and value is not False}
    return json.dumps(found, ensure_ascii=False, default=sorted)


def _selection(given: OptionValues) -> Selection:
    values = given.json("selection", dict[str, Any]) if "selection" in given else {}
    unknown = values.keys() - {field.name for field in fields(Selection)}
    if unknown:
        raise ConfigError(f"selection has unknown fields ({', '.join(sorted(unknown))}); write it by encode_selection")
    try:
        return msgspec.convert(values, Selection)
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
        raise ConfigError(f'format("{_FORMAT}") needs one or more stores; name them in load(...)')
    return store_roots(places)
