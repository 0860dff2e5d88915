import pytest

from rocketbroker.codec.remoting.bodies.lock_batch import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.lock_batch_mq import LockBatchMqProcessor, UnlockBatchMqProcessor
from tests.support.fakes import FakeConnection

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(3)]


def lock(parts, client, queues, group="g"):
    body = LockBatchRequestBody(group, client, False, queues).encode()
    answer = LockBatchMqProcessor(parts.locks).process(FakeConnection(), request(RequestCode.LOCK_BATCH_MQ, body=body))
    assert answer.code == 0
    return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set


def test_lock_and_unlock(parts):
    assert lock(parts, "one", QUEUES[:2]) == QUEUES[:2]
    assert lock(parts, "two", QUEUES) == QUEUES[2:]
    body = UnlockBatchRequestBody("g", "one", False, QUEUES).encode()
    command = request(RequestCode.UNLOCK_BATCH_MQ, body=body)
    answer = UnlockBatchMqProcessor(parts.locks).process(FakeConnection(), command)
    assert (answer.code, answer.header, answer.body) == (0, None, b"")
    assert lock(parts, "three", QUEUES) == QUEUES[:2]


def test_no_queues(parts):
    assert lock(parts, "one", []) == []


@pytest.mark.parametrize("group", ["", "../g", "a" * 256])
def test_illegal_group(parts, group):
    with pytest.raises(BrokerResponseError) as error:
        lock(parts, "one", QUEUES, group)
    assert error.value.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize("body", [b"", b"{}", b'{"clientId":"c","consumerGroup":"g","mqSet":[7]}'])
def test_wrong_body(parts, body):
    for processor in (LockBatchMqProcessor(parts.locks), UnlockBatchMqProcessor(parts.locks)):
        with pytest.raises(BrokerResponseError, match="the body of the request"):
            processor.process(FakeConnection(), request(RequestCode.LOCK_BATCH_MQ, body=body))
