"""SQL92 filter, compiled once (org.apache.rocketmq.filter.SqlFilter)."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, cast

from rocketbroker.codec.filter.expression import Expression
from rocketbroker.codec.filter.java_values import EvaluationError
from rocketbroker.codec.message.property_values import property_values
from rocketbroker.codec.message.record_properties import PropertyBlocks
from rocketbroker.common.errors import MQFilterError

#: Number of cached filters; RocketMQ keeps 100.
MOST_COMPILED: Final = 128
# Number of cached results, and the most bytes of the values that are the key of one.
_MOST_KNOWN: Final = 4096
_LONGEST_KNOWN: Final = 256

#: Raw values of the properties that a filter names, empty for a missing one; a single value is not in a tuple.
_Key = bytes | tuple[bytes, ...]


class SqlFilter:
    """Matches messages by their properties; :func:`compiled` returns one.

    Args:
        expression: the condition, from ``selector_parser.parse``.
    """

    __slots__ = ("_evaluate", "_known", "_names")

    def __init__(self, expression: Expression) -> None:
        numbers: dict[str, int] = {}
        self._evaluate = expression.compiled(lambda name: numbers.setdefault(name, len(numbers)))
        self._names = [name.encode() for name in numbers]
        self._known: dict[_Key, bool] = {}

    def is_matched_by_commit_log(self, properties: PropertyBlocks) -> list[bool]:
        """Return, for the properties of each message, true if the filter is true.

        It is not true for a message whose values cannot be compared as the filter demands.
        """
        if not self._names:
            return [self._look(())] * len(properties)
        columns = property_values(properties, self._names)
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
