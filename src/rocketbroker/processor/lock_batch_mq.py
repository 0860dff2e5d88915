"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): orderly consumers hold their queues (AdminBrokerProcessor)."""

from rocketbroker.broker.consumer_manager import ConsumerManager
from rocketbroker.broker.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.broker.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.remoting.bodies.lock_batch import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.name_check import check_known_group
from rocketbroker.processor.request_body import read_body

_SHOWN = 255


class LockBatchMqProcessor:
    """Locks queues for a client of a group, or renews its locks.

    Apache RocketMQ locks for anybody; a stranger's lock keeps the group from its queues for a minute. After a restart
    clients renew their locks before their next heartbeat: of a known group none is refused while no client is there.
    """

    def __init__(
        self, locks: RebalanceLockManager, consumers: ConsumerManager, subscription_groups: SubscriptionGroupManager
    ) -> None:
        self._locks = locks
        self._consumers = consumers
        self._subscription_groups = subscription_groups

    def process(self, _connection: Connection, command: Command) -> Command:
        """Answer the request: the queues that the client holds now.

        Raises:
            BrokerResponseError: SYSTEM_ERROR for a wrong body, INVALID_PARAMETER for an illegal group,
                CONSUMER_NOT_ONLINE for a client that is not in the group.
        """
        body = read_body(command.body, LockBatchRequestBody)
        check_known_group(body.consumer_group)
        self._check_member(body.consumer_group, body.client_id)
        locked = self._locks.try_lock_batch(body.consumer_group, body.mq_set, body.client_id)
        return response(body=LockBatchResponseBody(locked).encode())

    def _check_member(self, group: str, client_id: str) -> None:
        if self._consumers.find_channel(group, client_id) is not None:
            return
        if self._consumers.group_info(group) is None and self._subscription_groups.contains(group):
            return
        remark = (
            f"The Consumer <{group}> <{client_id[:_SHOWN]}> not online: no lock is given to a client that is not in "
            "the group; a heartbeat that names the group comes first"
        )
        raise BrokerResponseError(ResponseCode.CONSUMER_NOT_ONLINE, remark)


class UnlockBatchMqProcessor:
    """Releases queues."""

    def __init__(self, locks: RebalanceLockManager) -> None:
        self._locks = locks

    def process(self, _connection: Connection, command: Command) -> Command:
        """Answer the request; a lock that the client does not hold is no error.

        Raises:
            BrokerResponseError: SYSTEM_ERROR for a wrong body.
        """
        body = read_body(command.body, UnlockBatchRequestBody)
        self._locks.unlock_batch(body.consumer_group, body.mq_set, body.client_id)
        return response()
