"""The options of the Spark format ``rocketmq_store``."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

import msgspec

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_root import StoreRoot, store_roots
from rocketbroker.analytics.log.split import SPLIT_SIZE
from rocketbroker.analytics.tables.table import Table, TableOptions
from rocketbroker.analytics.tables.table_reader import DEFAULT_TABLE, find_table
from rocketbroker.common.errors import ConfigError

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_FORMAT: Final = "rocketmq_store"

_PLACES: Final = ("path", "paths", "stores")
_BYTES: Final = ("splitSize", "maxBytesPerTrigger")
_NUMBER: Final = re.compile(r"([0-9]{1,18}) ?([a-z]*)")
_UNITS: Final = {"": 1, "b": 1} | {
    unit + suffix: 1 << shift for unit, shift in (("k", 10), ("m", 20), ("g", 30)) for suffix in ("", "b", "ib")
}

T = TypeVar("T")

#: Meaning of each option; names may be written in any case.
OPTIONS: Final = {
    "path": "stores, separated by commas: paths or addresses, each with NAME= before it if wanted",
    "paths": "stores as a JSON list, which load([...]) sets",
    "stores": "stores as a JSON list of pairs of name and place",
    "table": "table to read (messages)",
    "splitSize": "bytes that one task reads, such as 64m (64 MiB)",
    "selection": "messages to read, as `encode_selection` writes a Selection (all)",
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


def refuse_stream_options(options: Mapping[str, str]) -> None:
    """Raise :class:`ConfigError` for an option that has no effect on a batch."""
    for name, value in known_options(options).items():
        if name == "maxBytesPerTrigger" or (name == "startingOffsets" and value.lower() != EARLIEST):
            raise ConfigError(f"{name} is {value!r}: it is for readStream; limit a batch by the option selection")


def table_of(options: Mapping[str, str]) -> Table:
    """Return the table that ``options`` name."""
    return find_table(known_options(options).get("table", DEFAULT_TABLE))


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse ``options``; raise :class:`ConfigError` for a missing store, or an unknown or invalid option."""
    given = known_options(options)
    crc, slots = _flag(given, "checkCrc"), _number(given, "maxHashSlotNum", 0)
    return SourceOptions(
        tuple(_stores(given)),
        table_of(options),
        TableOptions(_number(given, "splitSize", SPLIT_SIZE), slots, crc),
        selection=_selection(given),
        starting_offsets=_one_of(given, "startingOffsets", (EARLIEST, LATEST)),
        max_bytes_per_trigger=_number(given, "maxBytesPerTrigger", 0) or None,
        fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
    )


def known_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options by the names of ``OPTIONS``."""
    names = {name.lower(): name for name in OPTIONS}
    for name in options:
        if name.lower() not in names:
            raise ConfigError(f'format("{_FORMAT}") has no option {name!r}; its options are {", ".join(OPTIONS)}')
    return {names[name.lower()]: value for name, value in options.items()}


def encode_stores(stores: Sequence[StoreRoot]) -> str:
    """Return the option ``stores``."""
    return json.dumps([[store.broker, store.uri] for store in stores])


def encode_selection(selection: Selection) -> str:
    """Return the option ``selection``: a JSON object of the fields that are set."""
    given = {field.name: getattr(selection, field.name) for field in fields(selection)}
    found = {name: value for name, value in given.items() if value is not None and value is not False}
    return json.dumps(found, ensure_ascii=False, default=sorted)


def _selection(given: Mapping[str, str]) -> Selection:
    values = _json(given, "selection", dict[str, Any]) if "selection" in given else {}
    unknown = values.keys() - {field.name for field in fields(Selection)}
    if unknown:
        raise ConfigError(f"selection has unknown fields ({', '.join(sorted(unknown))}); write it by encode_selection")
    try:
        return msgspec.convert(values, Selection)
    except msgspec.ValidationError as error:
        raise ConfigError(f"selection is {given['selection']!r}: {error}; write it by encode_selection") from error


def _stores(given: Mapping[str, str]) -> list[StoreRoot]:
    if sum(bool(given.get(name)) for name in _PLACES) > 1:
        raise ConfigError(f"stores are named twice; set only one of {', '.join(_PLACES)}, by load(...)")
    if given.get("path"):
        return store_roots(given["path"])
    if "stores" in given:
        return store_roots([StoreRoot(*pair) for pair in _json(given, "stores", list[tuple[str, str]])])
    places = _json(given, "paths", list[str]) if "paths" in given else []
    if not places:
        raise ConfigError(f'format("{_FORMAT}") needs one or more stores; name them in load(...)')
    return store_roots(places)


def _json(given: Mapping[str, str], name: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(given[name], type=kind)
    except msgspec.MsgspecError as error:
        # Addresses may hold credentials: they are not repeated.
        what = "is invalid" if name in _PLACES else f"is {given[name]!r}"
        raise ConfigError(f"{name} {what} ({OPTIONS[name]}): {error}") from error


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    """Return a number above 0; one of bytes may have a unit, as in Spark's own settings."""
    if name not in given:
        return default
    units = _UNITS if name in _BYTES else {"": 1}
    found = _NUMBER.fullmatch(given[name].strip().lower())
    unit = units.get(found[2]) if found else None
    if found is None or unit is None or int(found[1]) == 0:
        raise ConfigError(f"{name} is {given[name]!r}; give a number above 0 ({OPTIONS[name]})")
    return int(found[1]) * unit


def _flag(given: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise ConfigError(f"{name} is {given[name]!r}; give true or false ({OPTIONS[name]})")
    return text == "true"


def _one_of(given: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    """Return the first of ``values`` if the option is not given."""
    text = given.get(name, values[0]).lower()
    if text not in values:
        raise ConfigError(f"{name} is {given[name]!r}; give {' or '.join(values)}")
    return text
