"""Subscriptions of a consumer, compared with those of the group's other consumers in this process."""

import logging
from weakref import WeakSet

from rocketbroker.client.errors import SubscriptionError
from rocketbroker.client.message_selector import MessageSelector
from rocketbroker.client.pull_api_wrapper import subscription_data
from rocketbroker.codec.remoting.bodies.client import SubscriptionData
from rocketbroker.common.clock import Clock

log = logging.getLogger(__name__)

# Seconds in which another consumer may subscribe to what the first one has.
_GRACE_S = 10.0
# Consumers of this process by name servers and group. Brokers take the last heartbeat of a group for all its members.
_members: dict[tuple[tuple[str, ...], str], WeakSet["Subscriptions"]] = {}


class Subscriptions:
    """Topics and filters of one consumer, from its start to its close.

    Args:
        name_servers: addresses of the name servers.
        group: the consumer group.
        clock: gives subscriptions their version.
    """

    def __init__(self, name_servers: tuple[str, ...], group: str, clock: Clock) -> None:
        self._key = (name_servers, group)
        self._group = group
        self._clock = clock
        # Times since which others have topics that this consumer lacks, and those that were warned of.
        self._missing_since: dict[str, float] = {}
        self._warned: set[str] = set()
        self.by_topic: dict[str, SubscriptionData] = {}

    def join(self) -> None:
        """Compare this consumer with the others from now on.

        Raises:
            SubscriptionError: another one has a topic with another filter.
        """
        for subscription in self.by_topic.values():
            self._check(subscription.topic, subscription.sub_string, subscription.expression_type)
        _members.setdefault(self._key, WeakSet()).add(self)

    def leave(self) -> None:
        """Compare this consumer no longer."""
        members = _members.get(self._key)
        if members is not None:
            members.discard(self)
            if not members:
                del _members[self._key]

    def add(self, topic: str, selector: MessageSelector) -> SubscriptionData:
        """Subscribe to a topic, or replace its filter; return the subscription.

        Raises:
            SubscriptionError: another consumer of the group has the topic with another filter.
        """
        self._check(topic, selector.expression, selector.expression_type)
        added = self.by_topic[topic] = subscription_data(topic, selector, self._clock.time_ms())
        return added

    def remove(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        self.by_topic.pop(topic, None)

    def warn_of_missing_topics(self) -> None:
        """Log once each topic that another consumer of the group has and this one lacks for some seconds.

        Consumers that subscribe alike do so one after the other.
        """
        now = self._clock.monotonic()
        found = {topic for other in _members.get(self._key, ()) for topic in other.by_topic}
        missing = found - self.by_topic.keys() - self._warned
        self._missing_since = {topic: self._missing_since.get(topic, now) for topic in missing}
        for topic in sorted(topic for topic in missing if now >= self._missing_since[topic] + _GRACE_S):
            self._warned.add(topic)
            log.warning(
                "two consumers of group %s in this process differ: one subscribes to %s, the other does not, so a "
                "part of its messages is not consumed; give all members of a group the same subscriptions",
                self._group,
                topic,
            )

    def _check(self, topic: str, expression: str, expression_type: str) -> None:
        for other in _members.get(self._key, ()):
            known = other.by_topic.get(topic)
            if other is self or known is None:
                continue
            if (known.sub_string, known.expression_type) != (expression, expression_type):
                raise SubscriptionError(
                    f"group {self._group} already consumes topic {topic} in this process by "
                    f"{known.expression_type} {known.sub_string!r}, not by {expression_type} {expression!r}; "
                    "give all members of a group the same subscription, or use another group"
                )
