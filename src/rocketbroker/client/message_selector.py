"""Filter of a subscription (org.apache.rocketmq.client.consumer.MessageSelector)."""

import re
from typing import Literal

from rocketbroker.client.errors import InvalidMessageError
from rocketbroker.client.options import CheckedStruct

_LOOKS_LIKE_SQL = re.compile(r"[<>=()]|\s(?:and|or|in|is|not|like|between|contains)\s", re.IGNORECASE)


class MessageSelector(CheckedStruct, frozen=True):
    """An expression and its type: ``by_sql("a > 5")``, or ``by_tag("TagA || TagB")``."""

    expression: str
    expression_type: Literal["TAG", "SQL92"]

    @classmethod
    def by_sql(cls, expression: str) -> "MessageSelector":
        """Select by SQL92 on properties, which brokers serve with ``enablePropertyFilter=true``."""
        return cls(expression, "SQL92")

    @classmethod
    def by_tag(cls, expression: str) -> "MessageSelector":
        """Select by tags joined by ``||``; ``*`` selects all messages."""
        return cls(expression, "TAG")

    @property
    def tags(self) -> frozenset[str]:
        """The tags to select; empty for all messages and for SQL92."""
        if self.expression_type != "TAG" or self.expression.strip() in {"", "*"}:
            return frozenset()
        return frozenset(tag.strip() for tag in self.expression.split("||") if tag.strip())


def selector_of(expression: str | MessageSelector) -> MessageSelector:
    """Return the selector for an expression; a plain text is a list of tags.

    Raises:
        InvalidMessageError: the text looks like SQL.
    """
    if isinstance(expression, MessageSelector):
        return expression
    if _LOOKS_LIKE_SQL.search(expression):
        raise InvalidMessageError(
            f"{expression!r} looks like SQL, but a plain expression is a list of tags (TagA || TagB); "
            f"use MessageSelector.by_sql({expression!r}), or by_tag if these are tags"
        )
    return MessageSelector.by_tag(expression)
