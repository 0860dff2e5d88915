"""DELETE_SUBSCRIPTIONGROUP (207): removes a consumer group (AdminBrokerProcessor.deleteSubscriptionGroup)."""

import logging

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.stats.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.subscription_group import DeleteSubscriptionGroupRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.support.name_check import check_known_group
from rocketbroker.processor.support.table_change import wait_settled

log = logging.getLogger(__name__)


class DeleteSubscriptionGroupProcessor:
    """Forgets the group, its counters and, where the request says so, its offsets."""

    def __init__(
        self, groups: SubscriptionGroupManager, offsets: ConsumerOffsetManager, stats: BrokerStatsManager
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._stats = stats

    async def process(
        self, connection: Connection, command: RemotingCommand[DeleteSubscriptionGroupRequestHeader]
    ) -> Command:
        """Remove the group; one that does not exist is removed all the same, since offsets of it may be left.

        Raises:
            BrokerResponseError: INVALID_PARAMETER, the name is illegal; SYSTEM_ERROR, the disk refused. The remark says
                what is left.
        """
        header = command.header
        check_known_group(header.group_name)
        log.info("%s deletes group %s, offsets: %s", connection.remote_address, header.group_name, header.clean_offset)
        self._groups.delete(header.group_name)
        await wait_settled([self._groups.settled(header.group_name)])
        if header.clean_offset:
            self._offsets.remove_group(header.group_name)
            await wait_settled(
                [self._offsets.flush()],
                f"group {header.group_name} is deleted, its offsets may be back after a restart; delete it again when "
                "the disk takes it",
            )
        self._stats.remove_group(header.group_name)
        return response()
