"""What a group consumes of a topic, in the form that pulls are filtered by (FilterAPI, SubscriptionData).

Clients send ``codeSet`` in several wrong ways, so that tag codes are always computed from the expression.
"""

from functools import lru_cache

from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.codec.remoting.bodies.heartbeat import SubscriptionData

SUB_ALL = "*"
TAG = "TAG"
# Longer expressions are split each time, so that the cache stays small whatever clients send.
LONGEST_CACHED = 1024


def tag_codes_of(sub_string: str) -> frozenset[int] | None:
    """The tag codes that ``A || B`` names; ``None`` for ``*``, for nothing, and for no tag at all: everything."""
    return _cached(sub_string) if len(sub_string) <= LONGEST_CACHED else _tag_codes_of(sub_string)


def _tag_codes_of(sub_string: str) -> frozenset[int] | None:
    tags = [tag.strip() for tag in sub_string.split("||")]
    if sub_string.strip() == SUB_ALL:
        return None
    return frozenset(tags_code(tag) for tag in tags if tag) or None


_cached = lru_cache(maxsize=4096)(_tag_codes_of)


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression is one of tags, which it is unless it says otherwise (ExpressionType.isTagType)."""
    return not expression_type or expression_type == TAG


class Subscription:
    """One topic of a group's subscription.

    Attributes:
        data: as the client sent it.
        sub_version: the client's version of it; greater is newer.
        tag_codes: what to keep, ``None`` for everything. Meaningless when ``is_tag`` is false.
        is_tag: whether the expression is one of tags, and not of SQL92.
    """

    __slots__ = ("data", "is_tag", "sub_version", "tag_codes")

    def __init__(self, data: SubscriptionData) -> None:
        self.data = data
        self.sub_version = data.sub_version
        self.is_tag = is_tag_type(data.expression_type)
        self.tag_codes = tag_codes_of(data.sub_string or "||".join(data.tags_set)) if self.is_tag else None
