"""Names of consumer groups, found by their retry topics.

A group has the retry topic ``%RETRY%group``. POP has one for each topic besides, and that of its version 1 is
``%RETRY%group_topic``: by the names alone it may as well be the retry topic of a group ``group_topic``. Where the rest
of a name is a topic, the brokers' tables of groups decide. RocketMQ's tool shows a group for each of these topics.
"""

import time
from collections.abc import Callable, Collection, Iterable

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.message.topic_validator import groups_with_retry_topics
from rocketbroker.common.errors import RocketBrokerError

# Brokers have tables of up to 100,000 groups, and who shows groups all the time asks every second.
_LOOK_UP_S = 10.0


class GroupNames:
    """Finds the groups of topics. Brokers are asked every ten seconds at most.

    Args:
        admin: asks the brokers.
        monotonic: a clock that never goes back, in seconds.
    """

    def __init__(self, admin: AdminClient, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._monotonic = monotonic
        self._next_look_up = float("-inf")
        # Names that were none at the last look-up.
        self._others: set[str] = set()

    async def of(self, topics: Collection[str]) -> list[str]:
        """Return the groups whose retry topics are among ``topics``, in their order.

        Until all brokers have told their groups, names that may be none are groups.

        Raises:
            RocketBrokerError: no name server answers.
        """
        names = groups_with_retry_topics(topics)
        doubtful = doubtful_groups(names, topics)
        if doubtful and self._monotonic() >= self._next_look_up:
            self._others = await self._without_groups(doubtful)
            self._next_look_up = self._monotonic() + _LOOK_UP_S
        return [name for name in names if name not in self._others]

    async def _without_groups(self, names: set[str]) -> set[str]:
        known: set[str] = set()
        for address in await self._admin.fetch_broker_addresses():
            try:
                known |= (await self._admin.get_all_subscription_group(address)).subscription_group_table.keys()
            except RocketBrokerError:
                return set()
        return names - known


def doubtful_groups(names: Iterable[str], topics: Collection[str]) -> set[str]:
    """Return the names that end with ``_`` and the name of one of the topics."""
    plain = set(topics)
    return {
        name
        for name in names
        if any(name[place + 1 :] in plain for place, character in enumerate(name) if character == "_" and place)
    }
