"""A SQL92 filter, compiled once (org.apache.rocketmq.filter.SqlFilter)."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, cast

from rocketbroker.codec.filter.expression import Expression
from rocketbroker.codec.filter.java_values import EvaluationError
from rocketbroker.codec.message.property_values import property_values
from rocketbroker.codec.message.record_properties import PropertyBlocks
from rocketbroker.common.errors import MQFilterError

#: RocketMQ keeps 100.
MOST_COMPILED: Final = 128
# Results that are remembered by the values they follow from, and the longest of these together in bytes.
_MOST_KNOWN: Final = 4096
_LONGEST_KNOWN: Final = 256

#: Raw values of the properties that a filter names, empty for one that is not there; of a single one not as a tuple.
_Key = bytes | tuple[bytes, ...]


class SqlFilter:
    """Says which messages match; use :func:`compiled` to get one.

    Args:
        expression: what to match, as ``selector_parser.parse`` gives it.
    """

    __slots__ = ("_evaluate", "_known", "_names")

    def __init__(self, expression: Expression) -> None:
        numbers: dict[str, int] = {}
        self._evaluate = expression.compiled(lambda name: numbers.setdefault(name, len(numbers)))
        self._names = [name.encode() for name in numbers]
        self._known: dict[_Key, bool] = {}

    def is_matched_by_commit_log(self, properties: PropertyBlocks) -> list[bool]:
        """For the properties of each message whether the filter is true for it.

        It is not for a message whose values cannot be compared as the filter says.
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
    """Return the filter that an expression makes, the same object for the same text while it is remembered.

    Raises:
        MQFilterError: it is no expression, or too long or nested too deep.
    """
    found = _compiled(expression)
    if isinstance(found, MQFilterError):
        # Without the traceback of the last time.
        raise MQFilterError(found.position, found.reason)
    return found


@lru_cache(maxsize=MOST_COMPILED)
def _compiled(expression: str) -> SqlFilter | MQFilterError:
    # lark takes a while to import, and most brokers have no such filter.
    from rocketbroker.codec.filter.selector_parser import parse

    try:
        return SqlFilter(parse(expression))
    except MQFilterError as error:
        return error.with_traceback(None)
