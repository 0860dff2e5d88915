"""Whether the clients of a group subscribe to the same (what ConsumerRunningInfo.analyzeSubscription asks afterwards).

A group has one subscription in the broker: that of the last heartbeat. When clients differ, each heartbeat replaces the
other's, and messages that one wants are passed over for all, or handed to one that does not want them.
"""

from collections.abc import Iterable

from rocketbroker.broker.client_channel_info import ClientChannelInfo
from rocketbroker.broker.subscription import TAG, is_tag_type
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.heartbeat import SubscriptionData
from rocketbroker.codec.remoting.handler import Connection

# topic -> kind of expression and what it asks for, in a form that compares
_Subscribed = dict[str, tuple[str, str]]

_NOTHING = ("", "nothing")


class ClientSubscriptions:
    """What each client of a group subscribes to. All methods are for the event loop.

    Attributes:
        conflict: two clients that differ, and in what; empty when all agree.
    """

    def __init__(self) -> None:
        self.conflict = ""
        self._clients: dict[Connection, tuple[str, _Subscribed]] = {}

    def update(self, channel: ClientChannelInfo, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Take over a client's heartbeat; returns whether ``conflict`` has changed."""
        said = (channel.client_id, _subscribed(subscriptions))
        if self._clients.get(channel.connection) == said:
            return False
        self._clients[channel.connection] = said
        return self._compare()

    def remove(self, connection: Connection) -> bool:
        """Forget a client that has left; returns whether ``conflict`` has changed."""
        return self._clients.pop(connection, None) is not None and self._compare()

    def _compare(self) -> bool:
        before, self.conflict = self.conflict, self._conflict()
        return self.conflict != before

    def _conflict(self) -> str:
        clients = sorted(self._clients.values(), key=lambda client: client[0])
        for client_id, subscribed in clients[1:]:
            first_id, first = clients[0]
            for topic in sorted(first.keys() | subscribed.keys()):
                one, other = first.get(topic, _NOTHING), subscribed.get(topic, _NOTHING)
                if one != other:
                    return (
                        f"its clients subscribe to different things: of topic {topic} {first_id} wants "
                        f"{_text(one)} and {client_id} wants {_text(other)}; all must say the same"
                    )
        return ""


def _subscribed(subscriptions: Iterable[SubscriptionData]) -> _Subscribed:
    return {
        data.topic: _comparable(data) for data in subscriptions if not data.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
    }


def _comparable(data: SubscriptionData) -> tuple[str, str]:
    if not is_tag_type(data.expression_type):
        return data.expression_type, data.sub_string.strip()
    tags = sorted({tag.strip() for tag in (data.sub_string or "||".join(data.tags_set)).split("||")} - {""})
    return TAG, " || ".join(tags) or "*"


def _text(subscribed: tuple[str, str]) -> str:
    kind, expression = subscribed
    return expression if kind in {"", TAG} else f"{kind} {expression}"
