"""Translation of Spark's filters into a ``Selection`` and the filters that Spark must still apply.

A filter is dropped if the selection chooses exactly the same rows. A filter that only narrows the parts to read is also
left to Spark, and so is one that a table does not support.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.tables.table import Table

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1


class Pushed(NamedTuple):
    """Selection to read, and the filters left to Spark."""

    selection: Selection
    left: list[Filter]


class _Narrowed(NamedTuple):
    """Selection of one filter, and whether it chooses exactly these rows."""

    selection: Selection
    exact: bool


def push_filters(filters: Iterable[Filter], table: Table, schema: pa.Schema, selection: Selection) -> Pushed:
    """Narrow ``selection`` by ``filters``, all of which must hold for a row; ``schema`` has the requested types."""
    own = {column: name for name, column in table.selects.items()} | {"broker": "broker"}
    left: list[Filter] = []
    for each in filters:
        found = _narrowed(each, own, schema)
        # A message may have several keys: the selections of two key filters cannot be intersected.
        if found is None or (found.selection.keys is not None and selection.keys is not None):
            left.append(each)
            continue
        selection = selection.and_(found.selection)
        if not found.exact:
            left.append(each)
    return Pushed(selection, left)


def _narrowed(given: Filter, own: Mapping[str, str], schema: pa.Schema) -> _Narrowed | None:
    """Translate a filter, ``None`` if a selection cannot express it."""
    if not isinstance(given, (*_COMPARISONS, In)) or len(given.attribute) != 1:
        return None
    (column,) = given.attribute
    name = own.get(column)
    if name is None or column not in schema.names:
        return None
    if name in _SETS:
        return _among(given, *_SETS[name])
    if name in _KEYS:
        return _with_key(given, name)
    if name == "store_timestamp" and pa.types.is_timestamp(schema.field(column).type):
        return _in_time(given)
    return _in_range(given, name)


#: Columns selected by value: the field of the selection, and the type of the values.
_SETS: Final[dict[str, tuple[str, type]]] = {
    "broker": ("brokers", str),
    "topic": ("topics", str),
    "tags": ("tags", str),
    "queue_id": ("queue_ids", int),
}
_KEYS: Final = ("keys", "uniq_key")


def _values(given: Any, kind: type) -> frozenset[Any] | None:
    """Return the values that a filter allows; ``None`` if it does not name them, or one is of another type."""
    if isinstance(given, In):
        values = frozenset(given.value)
    elif isinstance(given, (EqualTo, EqualNullSafe)):
        values = frozenset([given.value])
    else:
        return None
    return values if all(type(value) is kind for value in values) else None


def _among(given: Any, field: str, kind: type) -> _Narrowed | None:
    values = _values(given, kind)
    return None if values is None else _Narrowed(_selecting(field, values), exact=True)


def _selecting(field: str, value: Any) -> Selection:
    given: dict[str, Any] = {field: value}
    return Selection(**given)


def _with_key(given: Any, name: str) -> _Narrowed | None:
    """Translate a filter on KEYS; it only narrows, since a key may be one of several words of KEYS."""
    values = _values(given, str)
    if values is None:
        return None
    keys = {value.split(" ")[0] for value in values} if name == "keys" else values
    return _Narrowed(Selection(keys=keys), exact=False) if all(keys) else None


def _in_time(given: Any) -> _Narrowed | None:
    """Translate a filter on time; it only narrows, since times that Spark cannot represent are null in its rows."""
    bounds = _bounds(given, datetime, _first_ms_not_before, _first_ms_after)
    return None if bounds is None else _Narrowed(_times(*bounds), exact=False)


def _in_range(given: Any, name: str) -> _Narrowed | None:
    bounds = _bounds(given, int, lambda value: value, lambda value: value + 1)
    if bounds is None:
        return None
    if name == "store_timestamp":
        return _Narrowed(_times(*bounds), exact=True)
    return _Narrowed(_selecting(f"{name}s", bounds), exact=True)


def _times(since_ms: int, until_ms: int) -> Selection:
    """Return the selection of a time range, without bounds that exclude nothing: each bound costs a search."""
    return Selection(
        since_ms=since_ms if since_ms > _LOWEST else None, until_ms=until_ms if until_ms <= _HIGHEST else None
    )


def _bounds(
    given: Any, kind: type, not_before: Callable[[Any], int], after: Callable[[Any], int]
) -> tuple[int, int] | None:
    """Return the lower (inclusive) and upper (exclusive) bound of a filter; ``None`` without a value of type ``kind``.

    ``not_before`` returns the first number at or above a value, ``after`` the first above it.
    """
    if isinstance(given, In) or type(given.value) is not kind:
        return None
    value: Any = given.value
    if kind is datetime and value.tzinfo is None:
        return None  # a time without a zone: its meaning depends on the session
    low, high = not_before(value), after(value)
    if isinstance(given, (GreaterThan, GreaterThanOrEqual)):
        low, high = high if isinstance(given, GreaterThan) else low, _HIGHEST + 1
    elif isinstance(given, (LessThan, LessThanOrEqual)):
        low, high = _LOWEST, low if isinstance(given, LessThan) else high
    return (low, high) if low < high else None  # a value between two milliseconds is left to Spark, which finds nothing


_COMPARISONS: Final = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def _first_ms_not_before(value: datetime) -> int:
    return -((_EPOCH - value) // _MILLISECOND)


def _first_ms_after(value: datetime) -> int:
    return (value - _EPOCH) // _MILLISECOND + 1
