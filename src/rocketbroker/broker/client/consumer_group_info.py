"""One consumer group with connected clients (org.apache.rocketmq.broker.client.ConsumerGroupInfo)."""

import logging
from collections import OrderedDict
from collections.abc import Iterable

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.client_subscriptions import ClientSubscriptions
from rocketbroker.broker.client.subscription import Subscription
from rocketbroker.codec.remoting.bodies.connection import GetConsumerListByGroupResponseBody
from rocketbroker.codec.remoting.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.common.shown_name import shown

log = logging.getLogger(__name__)


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
