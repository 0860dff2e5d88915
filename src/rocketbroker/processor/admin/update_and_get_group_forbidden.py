"""UPDATE_AND_GET_GROUP_FORBIDDEN (353): permission of a group to read a topic (AdminBrokerProcessor)."""

import logging
from collections.abc import Awaitable

from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.topic_config import INDEX_PERM_READ, GroupForbidden
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import UpdateGroupForbiddenRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.admin.existing_group import check_existing_group
from rocketbroker.processor.admin.existing_topic import existing_topic
from rocketbroker.processor.support.table_change import answer_when_settled

log = logging.getLogger(__name__)


class UpdateAndGetGroupForbiddenProcessor:
    """Forbids or allows pulls of a topic by a group if ``readable`` is set, and answers the resulting permission."""

    def __init__(self, topics: TopicConfigManager, groups: SubscriptionGroupManager) -> None:
        self._topics = topics
        self._groups = groups

    def process(
        self, connection: Connection, command: RemotingCommand[UpdateGroupForbiddenRequestHeader]
    ) -> Command | Awaitable[Command]:
        """Answer the request.

        Raises:
            BrokerResponseError: SUBSCRIPTION_GROUP_NOT_EXIST, TOPIC_NOT_EXIST, or INVALID_PARAMETER for an illegal
                name.
        """
        header = command.header
        check_existing_group(self._groups, header.group)
        existing_topic(self._topics, header.topic)
        if header.readable is not None:
            what = "allowed" if header.readable else "forbidden"
            log.info("group %s %s to read topic %s, by %s", header.group, what, header.topic, connection.remote_address)
            self._groups.update_forbidden(header.group, header.topic, INDEX_PERM_READ, forbid=not header.readable)
        readable = not self._groups.forbidden(header.group, header.topic) & 1 << INDEX_PERM_READ
        answer = response(remark="", body=GroupForbidden(header.topic, header.group, readable).encode())
        return answer_when_settled([self._groups.settled(header.group)], answer)
