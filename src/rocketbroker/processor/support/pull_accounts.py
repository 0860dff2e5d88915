"""Offsets, counters and allowances that pulls change (tryCommitOffset, updateStats of PullMessageProcessor)."""

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.send_back_allowance import SendBackAllowance
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import FLAG_COMMIT_OFFSET, PullMessageRequestHeader
from rocketbroker.store.read.get_message import GetMessageResult


class PullAccounts:
    """Accounts of the groups and connections that pull.

    Args:
        subscription_groups: the groups; one that only pulls is not created, and leaves nothing behind.
        consumers: groups with clients, whose offsets only they commit.
        offsets: offsets that pulls commit, and resets of them.
        stats: counters of messages by group.
        send_backs: bytes that consumers may send back.
    """

    def __init__(
        self,
        subscription_groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        stats: BrokerStatsManager,
        send_backs: SendBackAllowance,
    ) -> None:
        self._subscription_groups = subscription_groups
        self._consumers = consumers
        self._offsets = offsets
        self._stats = stats
        self._send_backs = send_backs

    def commit_or_redirect(self, connection: Connection, header: PullMessageRequestHeader, *, held: bool) -> int | None:
        """Return the offset to pull from instead, if the group's offset was reset; else commit that of the pull.

        A pull that was ``held`` has been committed already.

        A commit creates the group; pulling alone does not. The pull of a stranger to a group with clients is served, as
        that of a client which has still to send its heartbeat after a restart of the broker, and its offset is ignored.
        """
        offsets, group = self._offsets, header.consumer_group
        if offsets.resets:
            asked = header.queue_offset
            moved_to = offsets.redirect(group, header.topic, header.queue_id, connection, asked, held=held)
            if moved_to is not None:
                return moved_to
        if not held and header.sys_flag & FLAG_COMMIT_OFFSET and header.commit_offset >= 0:
            share = connection.share
            if (
                self._consumers.may_commit(group, connection)
                and self._subscription_groups.find(group, share) is not None
            ):
                offsets.commit(group, header.topic, header.queue_id, header.commit_offset, share)
        return None

    def advance(self, connection: Connection, header: PullMessageRequestHeader, offset: int) -> None:
        """Record the offset that a group pulls from next."""
        if self._subscription_groups.contains(header.consumer_group):
            self._offsets.commit_pull(header.consumer_group, header.topic, header.queue_id, offset, connection.share)

    def answered(
        self, connection: Connection, header: PullMessageRequestHeader, result: GetMessageResult, *, found: bool
    ) -> None:
        """Count an answer, and the bytes of its messages, which the consumer may send back."""
        topic, group = header.topic, header.consumer_group
        if self._subscription_groups.contains(group):
            self._offsets.commit_pull(group, topic, header.queue_id, result.next_begin_offset, connection.share)
            stats = self._stats.group_get(topic, group)
        else:
            stats = self._stats.passing_gets
        if found:
            stats.add(result.message_count, result.total_size)
            self._send_backs.give(connection, result.total_size)
        else:
            stats.misses += 1
