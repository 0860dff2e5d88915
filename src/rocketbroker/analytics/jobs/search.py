"""Search for text in bodies and properties."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from rocketbroker.analytics.columns.arrow_columns import as_text
from rocketbroker.analytics.jobs.scope import as_time, millis
from rocketbroker.common.errors import ConfigError

BODY: Final = "body"
PROPERTIES: Final = "properties"
#: Column of messages for each place.
COLUMNS_OF: Final = {BODY: "decompressed_body", PROPERTIES: "properties"}
#: ``found_in`` of a message whose body cannot be decompressed, and so was not searched.
UNREADABLE_BODY: Final = "unreadable body"
# Bytes shown before the start of a match, and after it.
_BEFORE, _AFTER = 30, 90
#: Columns of the message in each row of a search.
SHOWN: Final = ("broker", "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "msg_id")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Text to search for, a substring or a regular expression (RE2), in ``BODY``, ``PROPERTIES`` or both."""

    text: str
    is_regex: bool = False
    ignore_case: bool = False
    places: tuple[str, ...] = (BODY, PROPERTIES)

    def __post_init__(self) -> None:
        if not self.text:
            raise ConfigError("the text to search for is empty; give at least one character")
        if not self.places or set(self.places) - {BODY, PROPERTIES}:
            raise ConfigError(f"places: {', '.join(self.places) or 'empty'}; search in {BODY}, {PROPERTIES} or both")
        try:
            self.positions(pa.array([""], pa.string()))
        except UnicodeEncodeError as error:
            raise ConfigError(f"{self.text!r} is not valid UTF-8, so no message can have it") from error
        except pa.ArrowInvalid as error:
            raise ConfigError(f"{self.text!r} is not a valid regular expression (RE2): {error}") from error

    def positions(self, values: pa.Array) -> pa.Array:
        """Return the start of the first match in each text, in bytes of UTF-8; -1 without one, null for null."""
        find = pc.find_substring_regex if self.is_regex else pc.find_substring
        return find(values, self.text, ignore_case=self.ignore_case)


def search(messages: DataFrame, pattern: Pattern) -> DataFrame:
    """Find the messages that match ``pattern``.

    Args:
        messages: the columns ``SHOWN``, and those of ``COLUMNS_OF`` for the places of ``pattern``.
        pattern: the text to search for.

    Returns:
        ``SHOWN``, ``found_in`` (``body``, ``property NAME`` for the first matching property, or ``UNREADABLE_BODY``)
        and ``excerpt``, the text around the first match. A message that matches in both places has two rows.
    """
    narrow = messages.select(*SHOWN, *[COLUMNS_OF[place] for place in pattern.places])
    narrow = narrow.withColumn("store_timestamp", millis(narrow, "store_timestamp"))
    texts = [StructField("found_in", StringType()), StructField("excerpt", StringType())]
    schema = StructType([*(field for field in narrow.schema if field.name in SHOWN), *texts])
    found = narrow.mapInArrow(partial(_find, pattern=pattern), schema)
    return found.withColumn("store_timestamp", as_time(millis(found, "store_timestamp")))


def _find(batches: Iterator[pa.RecordBatch], pattern: Pattern) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        shown = batch.select(list(SHOWN))
        if BODY in pattern.places:
            yield from _in_bodies(shown, batch.column(COLUMNS_OF[BODY]), pattern)
        if PROPERTIES in pattern.places:
            yield from _in_properties(shown, batch.column(COLUMNS_OF[PROPERTIES]), pattern)


def _in_bodies(shown: pa.RecordBatch, bodies: pa.Array, pattern: Pattern) -> Iterator[pa.RecordBatch]:
    unreadable = np.flatnonzero(bodies.is_null().to_numpy(zero_copy_only=False))
    if len(unreadable):
        yield _rows(shown, unreadable, [UNREADABLE_BODY] * len(unreadable), [None] * len(unreadable))
    # In binary values Arrow's patterns treat each byte as a character: "." and "ü" would match parts of characters.
    texts = as_text(bodies)
    at = pc.fill_null(pattern.positions(texts), -1).to_numpy()
    rows = np.flatnonzero(at >= 0)
    if len(rows):
        excerpts = [_excerpt(texts[row].as_py().encode(), int(at[row])) for row in rows.tolist()]
        yield _rows(shown, rows, [BODY] * len(rows), excerpts)


def _in_properties(shown: pa.RecordBatch, maps: pa.Array, pattern: Pattern) -> Iterator[pa.RecordBatch]:
    """Search the values of properties; the first match of a message counts."""
    names, values, of_row = maps.keys, maps.items, _parents(maps)
    at = pc.fill_null(pattern.positions(values), -1).to_numpy()
    found = np.flatnonzero((at >= 0) & (of_row >= 0) & (of_row < len(maps)))
    rows, first = np.unique(of_row[found], return_index=True)
    if len(rows):
        chosen = found[first].tolist()
        excerpts = [_excerpt(values[each].as_py().encode(), int(at[each])) for each in chosen]
        yield _rows(shown, rows, [f"property {names[each].as_py()}" for each in chosen], excerpts)


def _parents(maps: pa.MapArray) -> Any:
    """Return the row of each entry of the maps; entries without a row are before row 0, or after the last."""
    offsets = maps.offsets.to_numpy()
    return np.searchsorted(offsets, np.arange(len(maps.keys)), side="right") - 1


def _rows(shown: pa.RecordBatch, rows: Any, found_in: list[str], excerpts: Sequence[str | None]) -> pa.RecordBatch:
    chosen = shown.take(pa.array(rows))
    columns = [*chosen.columns, pa.array(found_in, pa.string()), pa.array(excerpts, pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=[*chosen.schema.names, "found_in", "excerpt"])


def _excerpt(value: bytes, at: int) -> str:
    """Return the text around ``at`` on one line, with "…" for omitted text."""
    start, end = max(at - _BEFORE, 0), min(at + _AFTER, len(value))
    text = value[start:end].decode("utf-8", "replace")
    shown = "".join(each if each.isprintable() else "·" for each in text)
    return f"{'…' * (start > 0)}{shown}{'…' * (end < len(value))}"
