"""SQL92 filter, compiled once (org.apache.rocketmq.filter.SqlFilter)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from rocketbroker.codec.filter.expression import Expression
from rocketbroker.codec.filter.java_values import EvaluationError
from rocketbroker.codec.message.property_values import property_values, values_at
from rocketbroker.codec.message.record_properties import MANY, PropertyBlocks
from rocketbroker.common.errors import MQFilterError

if TYPE_CHECKING:
    from rocketbroker.codec.filter.known_results import KnownResults

#: Number of cached filters; RocketMQ keeps 100.
MOST_COMPILED: Final = 128
# Number of cached results, and the most bytes of the values that are the key of one.
_MOST_KNOWN: Final = 4096
_LONGEST_KNOWN: Final = 256
# Bytes of the properties of many messages, at least.
_SHORTEST_OF_MANY: Final = 16

#: Raw values of the properties that a filter names, empty for a missing one; a single value is not in a tuple.
_Key = bytes | tuple[bytes, ...]


class SqlFilter:
    """Matches messages by their properties; :func:`compiled` returns one.

    Args:
        expression: the condition, from ``selector_parser.parse``.
    """

    __slots__ = ("_evaluate", "_known", "_known_of_many", "_names")

    def __init__(self, expression: Expression) -> None:
        numbers: dict[str, int] = {}
        self._evaluate = expression.compiled(lambda name: numbers.setdefault(name, len(numbers)))
        self._names = [name.encode() for name in numbers]
        self._known: dict[_Key, bool] = {}
        self._known_of_many: KnownResults | None = None

    def is_matched_by_commit_log(self, properties: PropertyBlocks) -> list[bool]:
        """Return, for the properties of each message, true if the filter is true.

        It is not true for a message whose values cannot be compared as the filter demands.
        """
        if not self._names:
            return [self._look(())] * len(properties)
        if len(properties) < MANY or len(properties.data) < _SHORTEST_OF_MANY:
            return self._results_of(property_values(properties, self._names))
        return self._results_of_many(properties)

    def _results_of_many(self, properties: PropertyBlocks) -> list[bool]:
        import numpy as np

        from rocketbroker.codec.filter.known_results import KnownResults
        from rocketbroker.codec.message.property_slices import property_slices

        known = self._known_of_many
        if known is None:
            known = self._known_of_many = KnownResults(len(self._names))
        data = np.frombuffer(properties.data, np.uint8)
        columns = property_slices(data, properties.starts, properties.lengths, *self._names)
        return known.matched(
            data, columns, lambda unknown: self._results_of([values_at(properties.data, each) for each in unknown])
        )

    def _results_of(self, columns: Sequence[list[bytes]]) -> list[bool]:
        """Return the result for the values of each message, by property."""
        keys: Sequence[_Key] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        found = list(map(self._known.get, keys))
        if None in found:
            found = [self._look(key) if known is None else known for known, key in zip(found, keys, strict=True)]
        return cast("list[bool]", found)

    def _look(self, key: _Key) -> bool:
        values = (key,) if isinstance(key, bytes) else key
        try:
            matched = self._evaluate([value.decode("utf-8", "replace") if value else None for value in values]) is True
        except EvaluationError:
            matched = False
        known = self._known
        if len(known) >= _MOST_KNOWN:
            known.clear()
        if len(b"".join(values)) <= _LONGEST_KNOWN:
            known[key] = matched
        return matched


def compiled(expression: str) -> SqlFilter:
    """Return the filter of an expression; the same object for the same text while it is cached.

    Raises:
        MQFilterError: The expression is invalid, too long, or nested too deep.
    """
    found = _compiled(expression)
    if isinstance(found, MQFilterError):
        # Without the traceback of the previous raise.
        raise MQFilterError(found.position, found.reason)
    return found


@lru_cache(maxsize=MOST_COMPILED)
def _compiled(expression: str) -> SqlFilter | MQFilterError:
    # lark takes long to import, and most brokers have no such filter.
    from rocketbroker.codec.filter.selector_parser import parse

    try:
        return SqlFilter(parse(expression))
    except MQFilterError as error:
        return error.with_traceback(None)
