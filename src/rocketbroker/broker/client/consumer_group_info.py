"""Members and subscriptions of a consumer group (org.apache.rocketmq.broker.client.ConsumerGroupInfo)."""

import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.client import (
    ConsumeFromWhere,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    MessageModel,
    SubscriptionData,
)
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, shown

log = logging.getLogger(__name__)

# Subscription of a group to a topic, in the form that filters pulls (FilterAPI, SubscriptionData).
#
# Clients send wrong values in ``codeSet``, so that tag codes are always computed from the expression.

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


def _tags_of(sub_string: str) -> list[str]:
    if sub_string.strip() == SUB_ALL:
        return []
    return list(dict.fromkeys(stripped for tag in sub_string.split("||") if (stripped := tag.strip())))


def _tag_codes_of(sub_string: str) -> frozenset[int] | None:
    return frozenset(map(tags_code, _tags_of(sub_string))) or None


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


def subscription_of(topic: str, expression_type: str | None, expression: str) -> Subscription:
    """Return the subscription that an expression describes (FilterAPI.build)."""
    tags = _tags_of(expression) if is_tag_type(expression_type) else []
    codes = [tags_code(each) for each in tags]
    return Subscription(SubscriptionData(topic, expression, 0, tags, codes, expression_type or TAG))


# Conflicts between the subscriptions of a group's clients (see ConsumerRunningInfo.analyzeSubscription).
#
# The broker keeps one subscription per group: that of the last heartbeat. When clients differ, each heartbeat replaces
# the other's. Messages that one client wants are then skipped for all, or delivered to one that does not want them.

# Each topic with the type of its expression and the normalized expression.
_Subscribed = frozenset[tuple[str, tuple[str, str]]]

_NOTHING = ("", "nothing")
# Digits of a code and a comma.
_CODE_CHARACTERS = 12


class SubscriptionSize(NamedTuple):
    """Number of topics that a client subscribes to in a group, and of the characters that describe them."""

    topics: int
    characters: int


_NO_SIZE = SubscriptionSize(0, 0)


def size_of(subscriptions: Collection[SubscriptionData]) -> SubscriptionSize:
    """Return the size of what the broker keeps of subscriptions."""
    characters = sum(
        len(each.topic)
        + len(each.sub_string)
        + len(each.expression_type)
        + sum(map(len, each.tags_set))
        + len(each.code_set) * _CODE_CHARACTERS
        for each in subscriptions
    )
    return SubscriptionSize(len(subscriptions), characters)


class _Alike(NamedTuple):
    """Clients with equal subscriptions, and their ids."""

    subscribed: _Subscribed
    ids: dict[Connection, str]


class ClientSubscriptions:
    """Subscriptions of a group by client. All methods are for the event loop.

    A client without subscriptions is not compared: the first heartbeat of a consumer may come before it subscribes.
    """

    def __init__(self) -> None:
        self._clients: dict[Connection, _Alike] = {}
        self._sizes: dict[Connection, SubscriptionSize] = {}
        # One entry for all clients that agree: joining and leaving cost the same in a group of any size.
        self._alike: dict[_Subscribed, _Alike] = {}

    @property
    def is_conflicting(self) -> bool:
        """True if the clients' subscriptions differ."""
        return len(self._alike) > 1

    @property
    def conflict(self) -> str:
        """Two clients that differ, and in which topic; empty if all agree."""
        if not self.is_conflicting:
            return ""
        (one, one_id), (other, other_id) = sorted(
            ((alike.subscribed, next(iter(alike.ids.values()))) for alike in islice(self._alike.values(), 2)),
            key=lambda client: client[1],
        )
        topic = min(topic for topic, _ in one ^ other)
        wanted, other_wanted = dict(one).get(topic, _NOTHING), dict(other).get(topic, _NOTHING)
        return (
            f"its clients subscribe to different things: of topic {topic} {shown(one_id)} wants {_text(wanted)} "
            f"and {shown(other_id)} wants {_text(other_wanted)}; all must say the same"
        )

    def size(self, connection: Connection) -> SubscriptionSize:
        """Return the size of a client's last subscriptions."""
        return self._sizes.get(connection, _NO_SIZE)

    def update(self, channel: ClientChannelInfo, subscriptions: Collection[SubscriptionData]) -> bool:
        """Apply a client's heartbeat; return true if clients began to differ, or agree again."""
        before = self.is_conflicting
        self._sizes[channel.connection] = size_of(subscriptions)
        subscribed = _subscribed(subscriptions)
        known = self._clients.get(channel.connection)
        if known is not None and known.subscribed == subscribed:
            return False
        self._forget(channel.connection)
        if subscribed:
            alike = self._alike.setdefault(subscribed, _Alike(subscribed, {}))
            alike.ids[channel.connection] = channel.client_id
            self._clients[channel.connection] = alike
        return self.is_conflicting != before

    def remove(self, connection: Connection) -> bool:
        """Remove a client that has left; return true if clients agree again."""
        before = self.is_conflicting
        self._sizes.pop(connection, None)
        self._forget(connection)
        return self.is_conflicting != before

    def _forget(self, connection: Connection) -> None:
        alike = self._clients.pop(connection, None)
        if alike is None:
            return
        del alike.ids[connection]
        if not alike.ids:
            del self._alike[alike.subscribed]


def _subscribed(subscriptions: Iterable[SubscriptionData]) -> _Subscribed:
    by_topic = {
        data.topic: _comparable(data) for data in subscriptions if not data.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
    }
    return frozenset(by_topic.items())


def _comparable(data: SubscriptionData) -> tuple[str, str]:
    if not is_tag_type(data.expression_type):
        return data.expression_type, data.sub_string.strip()
    return TAG, " || ".join(sorted(_tags_of(data.sub_string or "||".join(data.tags_set)))) or SUB_ALL


def _text(subscribed: tuple[str, str]) -> str:
    kind, expression = subscribed
    return shown(expression if kind in {"", TAG} else f"{kind} {expression}")


class ConsumerGroupInfo:
    """A group's clients by connection, and its subscriptions by topic.

    ``consume_type``, ``message_model`` and ``consume_from_where`` are as the last heartbeat gave them.
    """

    def __init__(self, group_name: str) -> None:
        self.group_name = group_name
        self.consume_type: ConsumeType | None = None
        self.message_model: MessageModel | None = None
        self.consume_from_where: ConsumeFromWhere | None = None
        self.notify_enabled = True
        # Loop time before which clients are not notified of changes.
        self.notify_again_at = 0.0
        # Fingerprint of the subscriptions in the last 5.x heartbeat of any client; 0 after one of an older client.
        self.heartbeat_fingerprint = 0
        self.channels: dict[Connection, ClientChannelInfo] = {}
        self._by_id: dict[str, dict[Connection, ClientChannelInfo]] = {}
        # Time of the last heartbeat from each host, oldest first; removing the first entry of a plain dict is a search.
        self._hosts: OrderedDict[bytes, float] = OrderedDict()
        self._encoded_ids: bytes | None = None
        self.subscription_table: dict[str, Subscription] = {}
        # Subscriptions as each client sends them; they should be equal.
        self.client_subscriptions = ClientSubscriptions()

    @property
    def is_broadcasting(self) -> bool:
        """True if each client consumes all queues, so that none depends on the others."""
        return self.message_model is MessageModel.BROADCASTING

    def find_subscription_data(self, topic: str) -> Subscription | None:
        """Return the group's subscription to a topic; runs once per pull."""
        return self.subscription_table.get(topic)

    def find_channel(self, client_id: str) -> ClientChannelInfo | None:
        """Return the client with that id, on its newest connection: it may have lost older ones."""
        channels = self._by_id.get(client_id)
        return None if channels is None else channels[next(reversed(channels))]

    def client_ids(self) -> list[str]:
        """Return the ids of all clients in the order in which they joined, without duplicates."""
        return list(self._by_id)

    def encoded_client_ids(self) -> bytes:
        """Return the body for GET_CONSUMER_LIST_BY_GROUP, which each client requests after each change."""
        if self._encoded_ids is None:
            self._encoded_ids = GetConsumerListByGroupResponseBody(self.client_ids()).encode()
        return self._encoded_ids

    def had_member_at(self, host: bytes, since: float) -> bool:
        """Return true if a heartbeat of the group has come from a host (address bytes) since then."""
        return self._hosts.get(host, since) > since

    def note_host(self, host: bytes, now: float, since: float) -> None:
        """Note a heartbeat from a host; forget the hosts without one since then."""
        self._hosts[host] = now
        self._hosts.move_to_end(host)
        while next(iter(self._hosts.values())) <= since:
            self._hosts.popitem(last=False)

    def update_channel(self, channel: ClientChannelInfo) -> bool:
        """Register or renew a client; return true if it is new."""
        known = self.channels.get(channel.connection)
        if known is not None and known.client_id == channel.client_id:
            known.last_update = channel.last_update
            return False
        if known is not None:
            log.error("client %s of group %s changed its id to %s", known, self.group_name, shown(channel.client_id))
            self.remove_channel(channel.connection)
        self.channels[channel.connection] = channel
        self._by_id.setdefault(channel.client_id, {})[channel.connection] = channel
        self._encoded_ids = None
        return known is None

    def remove_channel(self, connection: Connection) -> bool:
        """Remove the client of a connection; return true if there was one."""
        channel = self.channels.pop(connection, None)
        if channel is None:
            return False
        channels = self._by_id[channel.client_id]
        del channels[connection]
        if not channels:
            del self._by_id[channel.client_id]
        self._encoded_ids = None
        return True

    def update_subscription(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Apply a heartbeat's subscriptions; return true if topics were added or removed.

        Of two versions for a topic the newer one is kept, whichever client sent it.
        """
        changed = False
        topics = set()
        for data in subscriptions:
            topics.add(data.topic)
            known = self.subscription_table.get(data.topic)
            if known is None or data.sub_version > known.sub_version:
                self.subscription_table[data.topic] = Subscription(data)
            changed |= known is None
        for topic in self.subscription_table.keys() - topics:
            log.info("group %s no longer subscribes to %s", self.group_name, topic)
            del self.subscription_table[topic]
            changed = True
        return changed
