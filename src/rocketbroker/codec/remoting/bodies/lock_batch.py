"""Locks of orderly consumers (LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody)."""

import msgspec

from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable


class LockBatchRequestBody(RemotingSerializable):
    """Request of LOCK_BATCH_MQ (41)."""

    consumer_group: str
    client_id: str
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = msgspec.field(default_factory=list)


class LockBatchResponseBody(RemotingSerializable):
    """Answer to LOCK_BATCH_MQ: the queues that the client now holds."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)


class UnlockBatchRequestBody(LockBatchRequestBody):
    """Request of UNLOCK_BATCH_MQ (42)."""
