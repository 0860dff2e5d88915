"""Conflicts between the subscriptions of a group's clients (see ConsumerRunningInfo.analyzeSubscription).

The broker keeps one subscription per group: that of the last heartbeat. When clients differ, each heartbeat replaces
the other's. Messages that one client wants are then skipped for all, or delivered to one that does not want them.
"""

from collections.abc import Collection, Iterable
from itertools import islice
from typing import NamedTuple

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.subscription import TAG, is_tag_type
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.heartbeat import SubscriptionData
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.common.shown_name import shown

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
    if not data.tags_set and "||" not in data.sub_string:
        return TAG, data.sub_string.strip() or "*"
    tags = sorted({tag.strip() for tag in (data.sub_string or "||".join(data.tags_set)).split("||")} - {""})
    return TAG, " || ".join(tags) or "*"


def _text(subscribed: tuple[str, str]) -> str:
    kind, expression = subscribed
    return shown(expression if kind in {"", TAG} else f"{kind} {expression}")
