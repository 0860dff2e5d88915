"""DELETE_SUBSCRIPTIONGROUP (207): removes a consumer group (AdminBrokerProcessor.deleteSubscriptionGroup)."""

import logging

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import DeleteSubscriptionGroupRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.support.name_check import check_known_group
from rocketbroker.processor.support.table_change import wait_settled

log = logging.getLogger(__name__)


class DeleteSubscriptionGroupProcessor:
    """Deletes the group, its counters and, if the request asks for it, its offsets."""

    def __init__(
        self, groups: SubscriptionGroupManager, offsets: ConsumerOffsetManager, stats: BrokerStatsManager
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._stats = stats

    async def process(
        self, connection: Connection, command: RemotingCommand[DeleteSubscriptionGroupRequestHeader]
    ) -> Command:
        """Delete the group, even one that does not exist: offsets of it may be left.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the name is illegal; SYSTEM_ERROR if the disk failed. The remark
                says what is left.
        """
        header = command.header
        check_known_group(header.group_name)
        log.info(
            "deletion of group %s by %s, cleanOffset: %s",
            header.group_name,
            connection.remote_address,
            header.clean_offset,
        )
        self._groups.delete(header.group_name)
        await wait_settled([self._groups.settled(header.group_name)])
        if header.clean_offset:
            self._offsets.remove_group(header.group_name)
            await wait_settled(
                [self._offsets.flush()],
                f"group {header.group_name} is deleted, but its offsets may return after a restart; "
                "delete it again when the disk accepts writes",
            )
        self._stats.remove_group(header.group_name)
        return response()
