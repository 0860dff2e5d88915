import pytest

from rocketbroker.codec.remoting.bodies.lock_batch import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.common.errors import CodecError

QUEUE = b'{"brokerName":"b","queueId":0,"topic":"T"}'


def test_a_lock_is_of_all_brokers_unless_said_otherwise():
    body = LockBatchRequestBody.decode(b'{"clientId":"c","consumerGroup":"G","mqSet":[%b]}' % QUEUE)

    assert body == LockBatchRequestBody("G", "c", False, [MessageQueue("T", "b", 0)])


def test_the_answer_has_ok_in_capitals():
    assert LockBatchResponseBody([MessageQueue("T", "b", 0)]).encode() == b'{"lockOKMQSet":[%b]}' % QUEUE


@pytest.mark.parametrize("kind", [LockBatchRequestBody, UnlockBatchRequestBody])
def test_a_request_without_its_client_is_rejected(kind: type[LockBatchRequestBody]):
    with pytest.raises(CodecError, match="clientId"):
        kind.decode(b'{"consumerGroup":"G","mqSet":[]}')
