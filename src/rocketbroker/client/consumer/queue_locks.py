"""Locks of an orderly consumer on its queues (RebalanceImpl.lock, unlock and lockAll)."""

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import NamedTuple

from rocketbroker.client.client_instance import ClientInstance
from rocketbroker.client.failure_log import FailureLog
from rocketbroker.client.requests import check_success, client_request
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RocketBrokerError

log = logging.getLogger(__name__)


class Locked(NamedTuple):
    """Result of a lock request: queues that are locked now, and those whose broker did not answer."""

    locked: set[MessageQueue]
    unknown: set[MessageQueue]


class QueueLocks:
    """Locks queues at their brokers for one member of a group.

    Args:
        client: connections and routes.
        group: the consumer group.
    """

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._client = client
        self._group = group
        self._failures = FailureLog(log)

    async def lock(self, queues: Iterable[MessageQueue]) -> Locked:
        """Lock queues, or renew their locks."""
        result = Locked(set(), set())
        await asyncio.gather(*(self._lock_at_broker(part, result) for part in _by_broker(queues)))
        return result

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release queues; log a failure, after which the lock expires by itself."""
        await asyncio.gather(*map(self._unlock_at_broker, _by_broker(queues)))

    async def _lock_at_broker(self, queues: list[MessageQueue], result: Locked) -> None:
        body = LockBatchRequestBody(self._group, self._client.client_id, mq_set=queues).encode()
        try:
            command = client_request(RequestCode.LOCK_BATCH_MQ, body=body)
            answer = check_success(await self._client.invoke_at_broker(queues[0], command))
            result.locked.update(LockBatchResponseBody.decode(answer.body).lock_ok_mq_set)
        except RocketBrokerError as error:
            self._failures.warning("locking %d queues at %s failed: %s", len(queues), queues[0].broker_name, error)
            result.unknown.update(queues)

    async def _unlock_at_broker(self, queues: list[MessageQueue]) -> None:
        body = UnlockBatchRequestBody(self._group, self._client.client_id, mq_set=queues).encode()
        try:
            command = client_request(RequestCode.UNLOCK_BATCH_MQ, body=body)
            check_success(await self._client.invoke_at_broker(queues[0], command))
        except RocketBrokerError as error:
            log.warning("unlocking %d queues at %s failed: %s", len(queues), queues[0].broker_name, error)


def _by_broker(queues: Iterable[MessageQueue]) -> Collection[list[MessageQueue]]:
    brokers: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        brokers.setdefault(queue.broker_name, []).append(queue)
    return brokers.values()
