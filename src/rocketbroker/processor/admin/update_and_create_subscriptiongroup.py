"""UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200) and its list form (225): creates or changes consumer groups."""

import logging
from collections.abc import Awaitable, Sequence

from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, SubscriptionGroupList
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.name_check import check_group
from rocketbroker.processor.support.request_body import read_body
from rocketbroker.processor.support.table_change import answer_when_settled

log = logging.getLogger(__name__)

_MAX_RETRY_QUEUE_NUMS = 16384
MOST_LOGGED = 5


class UpdateAndCreateSubscriptionGroupProcessor:
    """Changes the table of consumer groups; answers when it is on disk."""

    def __init__(self, groups: SubscriptionGroupManager) -> None:
        self._groups = groups

    def process(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """Create or change one group (200).

        Raises:
            BrokerResponseError: INVALID_PARAMETER or SYSTEM_ERROR, which names the field; nothing was changed.
        """
        return self._update(connection, [read_body(command.body, SubscriptionGroupConfig)])

    def process_list(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """Create or change several groups (225): all or none.

        Raises:
            BrokerResponseError: INVALID_PARAMETER or SYSTEM_ERROR, which names the field; nothing was changed.
        """
        return self._update(connection, read_body(command.body, SubscriptionGroupList).group_config_list)

    def _update(
        self, connection: Connection, configs: Sequence[SubscriptionGroupConfig]
    ) -> Command | Awaitable[Command]:
        for config in configs:
            _check(config)
        log.info("%d groups updated by %s: %s", len(configs), connection.remote_address, configs[:MOST_LOGGED])
        for config in configs:
            self._groups.update(config)
        return answer_when_settled([self._groups.settled(config.group_name) for config in configs], response())


def _check(config: SubscriptionGroupConfig) -> None:
    check_group(config.group_name)
    if not 0 <= config.retry_queue_nums <= _MAX_RETRY_QUEUE_NUMS:
        remark = (
            f"the retryQueueNums {config.retry_queue_nums} of group {config.group_name} is illegal; "
            f"use 0 to {_MAX_RETRY_QUEUE_NUMS}"
        )
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
    if config.attributes:
        remark = f"unsupported key: {', '.join(config.attributes)[:160]}; groups have no attributes"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
