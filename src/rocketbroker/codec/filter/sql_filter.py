"""SQL92 filter, compiled once (org.apache.rocketmq.filter.SqlFilter)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from rocketbroker.codec.filter.expression import EvaluationError, Expression
from rocketbroker.codec.message.raw_records import MANY, PropertyBlocks, property_values, values_at
from rocketbroker.common.errors import MQFilterError

if TYPE_CHECKING:
    from rocketbroker.codec.filter.known_results import KnownResults
    from rocketbroker.codec.message.property_slices import Slices

#: Number of cached filters; RocketMQ keeps 100.
MOST_COMPILED: Final = 128
#: Number of filters whose results are cached, those used last: 1.3 MB each at most, 40 MB in all.
MOST_WITH_RESULTS: Final = 32
#: Number of results cached one by one.
MOST_KNOWN: Final = 1024
# Most bytes of the values that are the key of a cached result.
_LONGEST_KNOWN: Final = 128
# Longest expression, and most properties in it, that take a millisecond or two with the longest properties.
_LONGEST_QUICK: Final = 256
_MOST_NAMES_QUICK: Final = 8
#: Bytes of properties that are searched for one name between two looks at the time.
BYTES_AT_A_TIME: Final = 64 * 1024
#: The most, by doubling after each call that has left time over: fewer and larger parts cost less. Unlike pairs of four
#: bytes take longest, 10 ms then; a call that is over its time halves the parts again.
MOST_BYTES_AT_A_TIME: Final = 256 * 1024
# Bytes of the properties of many messages, at least.
_SHORTEST_OF_MANY: Final = 16

#: Raw values of the properties that a filter names, empty for a missing one; a single value is not in a tuple.
_Key = bytes | tuple[bytes, ...]
#: Returns true once no further message is to be evaluated.
_IsOver = Callable[[], bool] | None


class CachedResults:
    """Cached results of one filter."""

    __slots__ = ("by_values", "of_many")

    def __init__(self) -> None:
        self.by_values: dict[_Key, bool] = {}
        self.of_many: KnownResults | None = None


class SqlFilter:
    """Matches messages by their properties; :func:`compiled` returns one.

    Args:
        expression: the condition, from ``selector_parser.parse``.
        length: its length as a text.

    Attributes:
        is_quick: it is short, so that one message never takes long. Only such filters have cached results.
    """

    __slots__ = ("_bytes_at_a_time", "_evaluate", "_names", "is_quick")

    def __init__(self, expression: Expression, length: int) -> None:
        numbers: dict[str, int] = {}
        self._evaluate = expression.compiled(lambda name: numbers.setdefault(name, len(numbers)))
        self._names = [name.encode() for name in numbers]
        self._bytes_at_a_time = BYTES_AT_A_TIME
        self.is_quick = length <= _LONGEST_QUICK and len(numbers) <= _MOST_NAMES_QUICK

    def is_matched_by_commit_log(self, properties: PropertyBlocks, is_over: _IsOver = None) -> list[bool]:
        """Return, for the properties of each message, true if the filter is true; see ``MessageFilter``.

        It is not true for a message whose values cannot be compared as the filter demands.
        """
        if not self._names:
            return [self._is_true(())] * len(properties)
        if is_over is None:
            return self._results_of_blocks(properties, is_over)
        found: list[bool] = []
        size = self._bytes_at_a_time
        while len(found) < len(properties) and not (found and is_over()):
            part = properties.part(len(found), size // len(self._names))
            found += self._results_of_blocks(part, is_over)
        self._bytes_at_a_time = max(size // 2, BYTES_AT_A_TIME) if is_over() else min(size * 2, MOST_BYTES_AT_A_TIME)
        return found

    def _results_of_blocks(self, properties: PropertyBlocks, is_over: _IsOver) -> list[bool]:
        if len(properties) < MANY or len(properties.data) < _SHORTEST_OF_MANY:
            return self._results_of(property_values(properties, self._names), is_over)
        return self._results_of_many(properties, is_over)

    def _results_of_many(self, properties: PropertyBlocks, is_over: _IsOver) -> list[bool]:
        import numpy as np

        from rocketbroker.codec.filter.known_results import KnownResults
        from rocketbroker.codec.message.property_slices import property_slices

        data = np.frombuffer(properties.data, np.uint8)
        columns = property_slices(data, properties.starts, properties.lengths, *self._names)

        def results_of(slices: Sequence[Slices]) -> list[bool]:
            return self._results_of([values_at(properties.data, each) for each in slices], is_over)

        if not self.is_quick:
            return results_of(columns)
        results = cached_results(self)
        if results.of_many is None:
            results.of_many = KnownResults(len(self._names))
        return results.of_many.matched(data, columns, results_of)

    def _results_of(self, columns: Sequence[list[bytes]], is_over: _IsOver) -> list[bool]:
        """Return the result for the values of each message, by property, until it is over."""
        keys: Sequence[_Key] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        known = cached_results(self).by_values if self.is_quick else {}
        found = list(map(known.get, keys))
        if None in found:
            for number, key in enumerate(keys):
                if found[number] is None:
                    if number and is_over is not None and is_over():
                        return cast("list[bool]", found[:number])
                    found[number] = self._look(key, known)
        return cast("list[bool]", found)

    def _look(self, key: _Key, known: dict[_Key, bool]) -> bool:
        """Return the result for the values of a message, and cache it in ``known``."""
        matched = known.get(key)
        if matched is None:
            values = (key,) if isinstance(key, bytes) else key
            matched = self._is_true(values)
            if len(known) >= MOST_KNOWN:
                known.clear()
            if sum(map(len, values)) <= _LONGEST_KNOWN:
                known[key] = matched
        return matched

    def _is_true(self, values: Sequence[bytes]) -> bool:
        try:
            return self._evaluate([value.decode("utf-8", "replace") if value else None for value in values]) is True
        except EvaluationError:
            return False


@lru_cache(maxsize=MOST_WITH_RESULTS)
def cached_results(_filter: SqlFilter) -> CachedResults:
    """Return the results that are cached for a filter, empty for one that was not used lately."""
    return CachedResults()


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
        return SqlFilter(parse(expression), len(expression))
    except MQFilterError as error:
        return error.with_traceback(None)
