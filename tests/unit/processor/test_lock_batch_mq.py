import pytest

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import (
    ConsumerData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.handler import Audience
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.lock_batch_mq import LockBatchMqProcessor, UnlockBatchMqProcessor
from tests.support.fakes import FakeConnection

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(3)]


def locks_of(parts):
    parts.topic_configs.update(TopicConfig("T", 3, 3))
    return LockBatchMqProcessor(
        parts.config, parts.locks, parts.topic_configs, parts.consumers, parts.subscription_groups
    )


def join(parts, client, group="g"):
    """A heartbeat of a client that consumes in order."""
    parts.subscription_groups.find(group)
    channel = ClientChannelInfo(FakeConnection(), client, "JAVA", 513, parts.clock.monotonic())
    parts.consumers.register(channel, ConsumerData(group))


def lock(parts, client, queues, group="g"):
    body = LockBatchRequestBody(group, client, False, queues).encode()
    answer = locks_of(parts).process(FakeConnection(), request(RequestCode.LOCK_BATCH_MQ, body=body))
    assert answer.code == 0
    return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set


def test_lock_and_unlock(parts):
    for client in ("one", "two", "three"):
        join(parts, client)
    assert lock(parts, "one", QUEUES[:2]) == QUEUES[:2]
    assert lock(parts, "two", QUEUES) == QUEUES[2:]
    body = UnlockBatchRequestBody("g", "one", False, QUEUES).encode()
    command = request(RequestCode.UNLOCK_BATCH_MQ, body=body)
    answer = UnlockBatchMqProcessor(parts.config, parts.locks).process(FakeConnection(), command)
    assert (answer.code, answer.header, answer.body) == (0, None, b"")
    assert lock(parts, "three", QUEUES) == QUEUES[:2]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_client_that_is_not_in_the_group_locks_nothing(parts, is_known):
    if is_known:
        join(parts, "one")
    with pytest.raises(
        BrokerResponseError, match="The Consumer <g> <two> not online: only clients of the group may lock"
    ) as error:
        lock(parts, "two", QUEUES)
    assert error.value.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert parts.locks.is_lock_all_expired("g")
    join(parts, "one")
    assert lock(parts, "one", QUEUES) == QUEUES


def test_locks_are_renewed_before_the_first_heartbeat_after_a_restart(parts):
    parts.subscription_groups.find("g")
    assert lock(parts, "one", QUEUES) == QUEUES


def test_no_queues(parts):
    join(parts, "one")
    assert lock(parts, "one", []) == []


@pytest.mark.parametrize("group", ["", "../g", "a" * 256])
def test_illegal_group(parts, group):
    with pytest.raises(BrokerResponseError) as error:
        lock(parts, "one", QUEUES, group)
    assert error.value.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize("body", [b"", b"{}", b'{"clientId":"c","consumerGroup":"g","mqSet":[7]}'])
def test_wrong_body(parts, body):
    for processor in (locks_of(parts), UnlockBatchMqProcessor(parts.config, parts.locks)):
        with pytest.raises(BrokerResponseError, match="the body of the request"):
            processor.process(FakeConnection(), request(RequestCode.LOCK_BATCH_MQ, body=body))


def test_made_up_queues_are_not_locked(parts):
    join(parts, "one")
    made_up = [
        MessageQueue("T", "broker-a", 3),
        MessageQueue("T", "broker-a", -1),
        MessageQueue("T", "broker-b", 0),
        MessageQueue("U", "broker-a", 0),
    ]
    assert lock(parts, "one", [*made_up, QUEUES[0], QUEUES[0]]) == [QUEUES[0]]
    assert lock(parts, "one", made_up) == []
    assert list(parts.locks._table["g"]) == [QUEUES[0]]


@pytest.mark.parametrize("queue", [MessageQueue("T", "broker-a", 0), MessageQueue("t" * 5_000, "broker-a", 0)])
def test_too_many_queues_are_rejected(parts, queue):
    join(parts, "one")
    body = LockBatchRequestBody("g", "one", False, [queue] * 4_097).encode()
    for processor in (locks_of(parts), UnlockBatchMqProcessor(parts.config, parts.locks)):
        with pytest.raises(
            BrokerResponseError, match=r"maxQueuesPerLockRequest: .* exceeds the limit of 4,096"
        ) as error:
            processor.process(FakeConnection(), request(RequestCode.LOCK_BATCH_MQ, body=body))
        assert error.value.code == ResponseCode.INVALID_PARAMETER


def test_a_client_locks_no_queue_for_a_group_of_the_broker(parts):
    body = LockBatchRequestBody("CID_RMQ_SYS_TRANS", "one", False, QUEUES).encode()
    stranger = FakeConnection("10.0.0.9:1", Audience.CLIENT)
    with pytest.raises(
        BrokerResponseError, match="the consumer group CID_RMQ_SYS_TRANS belongs to the broker"
    ) as error:
        locks_of(parts).process(stranger, request(RequestCode.LOCK_BATCH_MQ, body=body))
    assert error.value.code == ResponseCode.NO_PERMISSION


def test_a_long_client_id_is_rejected(parts):
    parts.subscription_groups.find("g")
    with pytest.raises(BrokerResponseError, match="maxClientIdLength: 1,025 characters of a clientId exceed the limit"):
        lock(parts, "x" * 1_025, QUEUES)
    assert parts.locks.is_lock_all_expired("g")


def test_locks_keep_no_text_of_the_request(parts):
    join(parts, "one")
    lock(parts, "one", QUEUES)
    kept = next(iter(parts.locks._table["g"]))
    assert kept.topic is parts.topic_configs.select("T").topic_name
    assert kept.broker_name is parts.config.broker_name
