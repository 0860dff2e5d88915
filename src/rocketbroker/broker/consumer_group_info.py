"""One consumer group that has clients (org.apache.rocketmq.broker.client.ConsumerGroupInfo)."""

import logging
from collections.abc import Iterable

from rocketbroker.broker.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client_subscriptions import ClientSubscriptions
from rocketbroker.broker.subscription import Subscription
from rocketbroker.codec.remoting.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from rocketbroker.codec.remoting.handler import Connection

log = logging.getLogger(__name__)


class ConsumerGroupInfo:
    """A group's clients by connection, and what it subscribes to by topic.

    ``consume_type``, ``message_model`` and ``consume_from_where`` are as the last heartbeat gave them.
    """

    def __init__(self, group_name: str) -> None:
        self.group_name = group_name
        self.consume_type: ConsumeType | None = None
        self.message_model: MessageModel | None = None
        self.consume_from_where: ConsumeFromWhere | None = None
        self.notify_enabled = True
        # Of the subscriptions in the last heartbeat of 5.x, whichever client it came from; 0 from older clients.
        self.heartbeat_fingerprint = 0
        self.channels: dict[Connection, ClientChannelInfo] = {}
        self.subscription_table: dict[str, Subscription] = {}
        # What each client says that it consumes; all are to say the same.
        self.client_subscriptions = ClientSubscriptions()

    @property
    def is_broadcasting(self) -> bool:
        """Whether each client consumes everything, so that none cares who else is there."""
        return self.message_model is MessageModel.BROADCASTING

    def find_subscription_data(self, topic: str) -> Subscription | None:
        """The group's subscription of a topic; on the path of each pull."""
        return self.subscription_table.get(topic)

    def find_channel(self, client_id: str) -> ClientChannelInfo | None:
        """The client of that id; of its connections the newest, as it may have lost those before."""
        return next((channel for channel in reversed(self.channels.values()) if channel.client_id == client_id), None)

    def client_ids(self) -> list[str]:
        """Ids of all clients, in the order in which they came; one that came twice counts once."""
        return list(dict.fromkeys(channel.client_id for channel in self.channels.values()))

    def update_channel(self, channel: ClientChannelInfo) -> bool:
        """Register or renew a client; returns whether it is new."""
        known = self.channels.get(channel.connection)
        if known is not None and known.client_id == channel.client_id:
            known.last_update = channel.last_update
            return False
        if known is not None:
            log.error("%s of group %s calls itself %s now", known, self.group_name, channel.client_id)
        self.channels[channel.connection] = channel
        return known is None

    def update_subscription(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Take over a heartbeat's subscriptions; returns whether topics came or went.

        Of two versions for a topic the newer stays, whichever client it came from.
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
