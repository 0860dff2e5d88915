import json

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
from rocketbroker.codec.remoting.headers.admin import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.client_manage import ClientManageRequests
from tests.support.fakes import FakeConnection
from tests.support.golden_frames import requests_of
from tests.support.processor_calls import family


@pytest.mark.parametrize(
    ("producer", "consumer"), [("p", None), (None, "g"), ("p", "g"), ("", ""), ("unknown", "unknown"), ("p", "")]
)
def test_leaves_the_named_groups(parts, producer, consumer):
    channel = ClientChannelInfo(FakeConnection(), "c", "JAVA", 513, parts.clock.monotonic())
    parts.producers.register("p", channel)
    parts.consumers.register(channel, ConsumerData("g"))
    command = request(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader("c", producer, consumer))
    answer = family(ClientManageRequests, parts).unregister_client(channel.connection, command)
    assert (answer.code, answer.header) == (0, {})
    assert ("p" in parts.producers.groups) == (producer != "p")
    assert ("g" in parts.consumers.groups) == (consumer != "g")


def test_another_connection_cannot_unregister_it(parts):
    channel = ClientChannelInfo(FakeConnection(), "c", "JAVA", 513, parts.clock.monotonic())
    parts.producers.register("p", channel)
    command = request(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader("c", "p", "g"))
    family(ClientManageRequests, parts).unregister_client(FakeConnection(), command)
    assert "p" in parts.producers.groups


def ask(parts, group):
    command = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(group))
    return family(ClientManageRequests, parts).get_consumer_list_by_group(FakeConnection(), command)


def test_ids_of_the_clients(parts):
    for name in ("one", "two"):
        channel = ClientChannelInfo(FakeConnection(), name, "JAVA", 513, parts.clock.monotonic())
        parts.consumers.register(channel, ConsumerData("g"))
    answer = ask(parts, "g")
    assert answer.code == 0
    assert json.loads(answer.body) == {"consumerIdList": ["one", "two"]}


def test_group_without_clients(parts):
    answer = ask(parts, "g")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, g")


def ask_check_client_config(body, *, enabled=True):
    processor = family(ClientManageRequests, config=BrokerConfig(enable_property_filter=enabled))
    return processor.check_client_config(FakeConnection(), request(RequestCode.CHECK_CLIENT_CONFIG, body=body))


def refused(body, *, enabled=True):
    with pytest.raises(BrokerResponseError) as error:
        ask_check_client_config(body, enabled=enabled)
    return error.value.code, error.value.remark


def sql(expression, expression_type="SQL92"):
    data = {"topic": "T", "subString": expression, "expressionType": expression_type}
    return json.dumps({"clientId": "c", "group": "g", "subscriptionData": data}).encode()


def recorded(group):
    """Bodies that Java clients sent, one with a right and one with a wrong expression."""
    bodies = [frame.body() for frame in requests_of(RequestCode.CHECK_CLIENT_CONFIG)]
    found = [body for body in bodies if json.loads(body)["group"] == group]
    assert found
    return found


def test_recorded_sql_subscriptions_are_rejected_while_properties_are_not_filtered():
    for body in recorded("CG_Sql") + recorded("CG_SqlBad"):
        code, remark = refused(body, enabled=False)
        assert code == ResponseCode.SYSTEM_ERROR
        assert remark.startswith("The broker does not support consumer to filter message by SQL92: ")
        assert remark.endswith("enablePropertyFilter is false; set it to true to enable such filters")


def test_recorded_sql_subscriptions_are_checked_while_properties_are_filtered():
    for body in recorded("CG_Sql"):
        assert ask_check_client_config(body).code == 0
    for body in recorded("CG_SqlBad"):
        code, remark = refused(body)
        assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert remark.startswith("Invalid MessageSelector. At character 8: '=' is not allowed here; expected ")


@pytest.mark.parametrize(
    ("expression", "remark"),
    [
        ("a LIKE 'x'", "Invalid MessageSelector. At character 3: 'LIKE' is not allowed here; expected AND, BETWEEN, "),
        ("", "Invalid MessageSelector. At character 1: the expression ends too early; expected "),
        ("(" * 1000 + "a" + ")" * 1000, "the expression is nested more than 64 levels deep, which is the limit"),
        ("a = 1 " + " " * 10_000, "the expression has 10,006 characters; the limit is 4,096"),
    ],
)
def test_a_wrong_expression_is_rejected_with_its_place(expression, remark):
    code, said = refused(sql(expression))
    assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert remark in said


def test_an_unknown_type_is_rejected():
    code, remark = refused(sql("a", "XPATH"))
    assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "the expressionType 'XPATH' is unknown; use TAG or SQL92" in remark


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("expression_type", [b"", b',"expressionType":"TAG"', b',"expressionType":null'])
def test_tags_are_served(expression_type, enabled):
    body = b'{"clientId":"c","group":"g","subscriptionData":{"topic":"T","subString":"*"%b}}' % expression_type
    answer = ask_check_client_config(body, enabled=enabled)
    assert (answer.code, answer.header) == (0, None)


def test_nothing_to_check():
    assert ask_check_client_config(b"{}").code == 0


def test_wrong_body():
    with pytest.raises(BrokerResponseError):
        ask_check_client_config(b"x")


@pytest.mark.parametrize("expression_type", ["TAG", "SQL92"])
def test_a_subscription_that_is_too_long_is_rejected_before_it_is_parsed(expression_type):
    code, remark = refused(sql("a" * 20_000, expression_type))
    assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert remark.startswith("maxSubscriptionLength: a subscription of 20,0")


QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(3)]


def locks_of(parts):
    parts.topic_configs.update(TopicConfig("T", 3, 3))
    return family(ClientManageRequests, parts)


def join(parts, client, group="g"):
    """A heartbeat of a client that consumes in order."""
    parts.subscription_groups.find(group)
    channel = ClientChannelInfo(FakeConnection(), client, "JAVA", 513, parts.clock.monotonic())
    parts.consumers.register(channel, ConsumerData(group))


def lock(parts, client, queues, group="g"):
    body = LockBatchRequestBody(group, client, False, queues).encode()
    answer = locks_of(parts).lock_batch_mq(FakeConnection(), request(RequestCode.LOCK_BATCH_MQ, body=body))
    assert answer.code == 0
    return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set


@pytest.mark.proves("Order", "LOCK_BATCH_MQ, UNLOCK_BATCH_MQ; a lock that is not renewed ends after 60 s")
def test_lock_and_unlock(parts):
    for client in ("one", "two", "three"):
        join(parts, client)
    assert lock(parts, "one", QUEUES[:2]) == QUEUES[:2]
    assert lock(parts, "two", QUEUES) == QUEUES[2:]
    body = UnlockBatchRequestBody("g", "one", False, QUEUES).encode()
    command = request(RequestCode.UNLOCK_BATCH_MQ, body=body)
    answer = family(ClientManageRequests, parts).unlock_batch_mq(FakeConnection(), command)
    assert (answer.code, answer.header, answer.body) == (0, None, b"")
    assert lock(parts, "three", QUEUES) == QUEUES[:2]


@pytest.mark.proves("Order", "a lock by a client that is not in the group is rejected")
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
def test_wrong_body_lock_batch_mq(parts, body):
    locks = locks_of(parts)
    for process in (locks.lock_batch_mq, locks.unlock_batch_mq):
        with pytest.raises(BrokerResponseError, match="the body of the request"):
            process(FakeConnection(), request(RequestCode.LOCK_BATCH_MQ, body=body))


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
    assert parts.locks.queues("g") == [QUEUES[0]]


@pytest.mark.parametrize("queue", [MessageQueue("T", "broker-a", 0), MessageQueue("t" * 5_000, "broker-a", 0)])
def test_too_many_queues_are_rejected(parts, queue):
    join(parts, "one")
    body = LockBatchRequestBody("g", "one", False, [queue] * 4_097).encode()
    locks = locks_of(parts)
    for process in (locks.lock_batch_mq, locks.unlock_batch_mq):
        with pytest.raises(
            BrokerResponseError, match=r"maxQueuesPerLockRequest: .* exceeds the limit of 4,096"
        ) as error:
            process(FakeConnection(), request(RequestCode.LOCK_BATCH_MQ, body=body))
        assert error.value.code == ResponseCode.INVALID_PARAMETER


def test_a_client_locks_no_queue_for_a_group_of_the_broker(parts):
    body = LockBatchRequestBody("CID_RMQ_SYS_TRANS", "one", False, QUEUES).encode()
    stranger = FakeConnection("10.0.0.9:1", Audience.CLIENT)
    with pytest.raises(
        BrokerResponseError, match="the consumer group CID_RMQ_SYS_TRANS belongs to the broker"
    ) as error:
        locks_of(parts).lock_batch_mq(stranger, request(RequestCode.LOCK_BATCH_MQ, body=body))
    assert error.value.code == ResponseCode.NO_PERMISSION


def test_a_long_client_id_is_rejected(parts):
    parts.subscription_groups.find("g")
    with pytest.raises(BrokerResponseError, match="maxClientIdLength: 1,025 characters of a clientId exceed the limit"):
        lock(parts, "x" * 1_025, QUEUES)
    assert parts.locks.is_lock_all_expired("g")


def test_locks_keep_no_text_of_the_request(parts):
    join(parts, "one")
    lock(parts, "one", QUEUES)
    kept = parts.locks.queues("g")[0]
    assert kept.topic is parts.topic_configs.select("T").topic_name
    assert kept.broker_name is parts.config.broker_name
