"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): orderly consumers hold their queues (AdminBrokerProcessor)."""

from rocketbroker.broker.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.codec.remoting.bodies.lock_batch import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.processor.name_check import check_known_group
from rocketbroker.processor.request_body import read_body


class LockBatchMqProcessor:
    """Locks queues for a client of a group, or renews its locks."""

    def __init__(self, locks: RebalanceLockManager) -> None:
        self._locks = locks

    def process(self, _connection: Connection, command: Command) -> Command:
        """Answer the request: the queues that the client holds now.

        Raises:
            BrokerResponseError: SYSTEM_ERROR for a wrong body, INVALID_PARAMETER for an illegal group.
        """
        body = read_body(command.body, LockBatchRequestBody)
        check_known_group(body.consumer_group)
        locked = self._locks.try_lock_batch(body.consumer_group, body.mq_set, body.client_id)
        return response(body=LockBatchResponseBody(locked).encode())


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
