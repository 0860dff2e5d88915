"""Subscription of a group to a topic, in the form that filters pulls (FilterAPI, SubscriptionData).

Clients send wrong values in ``codeSet``, so that tag codes are always computed from the expression.
"""

from functools import lru_cache

from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.codec.remoting.bodies.heartbeat import SubscriptionData
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError

SUB_ALL = "*"
TAG = "TAG"
# Longer expressions are not cached, so that the cache stays small whatever clients send.
LONGEST_CACHED = 256
_MOST_CACHED = 1024


class SubscriptionLimit:
    """Limits of one subscription in a pull or a heartbeat.

    Args:
        config: ``maxSubscriptionLength`` and ``maxSubscriptionTags``.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def check(self, expression: str) -> None:
        """Check an expression before it is parsed.

        Raises:
            BrokerResponseError: SUBSCRIPTION_PARSE_FAILED; it is too long or has too many tags.
        """
        self._check(len(expression), expression.count("||") + 1)

    def check_data(self, data: SubscriptionData) -> None:
        """Check all parts of a subscription that the broker keeps.

        Raises:
            BrokerResponseError: SUBSCRIPTION_PARSE_FAILED; it is too long or has too many tags.
        """
        length = len(data.sub_string) + len(data.expression_type)
        self._check(length, max(data.sub_string.count("||") + 1, len(data.tags_set), len(data.code_set)))
        self._check(sum(map(len, data.tags_set)), 0)

    def _check(self, length: int, tags: int) -> None:
        config = self._config
        if length > config.max_subscription_length:
            raise _refusal("maxSubscriptionLength", f"{length:,} characters", config.max_subscription_length)
        if tags > config.max_subscription_tags:
            raise _refusal("maxSubscriptionTags", f"{tags:,} tags", config.max_subscription_tags)


def _refusal(name: str, found: str, limit: int) -> BrokerResponseError:
    remark = f"{name}: a subscription of {found} exceeds the limit of {limit:,}; shorten it or raise {name}"
    return BrokerResponseError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)


def tag_codes_of(sub_string: str) -> frozenset[int] | None:
    """Return the tag codes of an expression like ``A || B``; ``None`` for all messages (``*``, or no tag at all)."""
    return _cached(sub_string) if len(sub_string) <= LONGEST_CACHED else _tag_codes_of(sub_string)


def _tag_codes_of(sub_string: str) -> frozenset[int] | None:
    tags = [tag.strip() for tag in sub_string.split("||")]
    if sub_string.strip() == SUB_ALL:
        return None
    return frozenset(tags_code(tag) for tag in tags if tag) or None


_cached = lru_cache(maxsize=_MOST_CACHED)(_tag_codes_of)


def is_tag_type(expression_type: str | None) -> bool:
    """Return true if an expression selects by tags, which is the default (ExpressionType.isTagType)."""
    return not expression_type or expression_type == TAG


class Subscription:
    """One topic of a group's subscription.

    Attributes:
        data: the subscription as the client sent it.
        sub_version: the client's version of it; greater is newer.
        tag_codes: the tag codes to deliver, ``None`` for all. Meaningless if ``is_tag`` is false.
        is_tag: true if the expression selects by tags, not by SQL92.
    """

    __slots__ = ("data", "is_tag", "sub_version", "tag_codes")

    def __init__(self, data: SubscriptionData) -> None:
        self.data = data
        self.sub_version = data.sub_version
        self.is_tag = is_tag_type(data.expression_type)
        self.tag_codes = tag_codes_of(data.sub_string or "||".join(data.tags_set)) if self.is_tag else None
