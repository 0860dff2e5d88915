import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import (
    CheckClientRequestBody,
    Connection,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerData,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    ProducerConnection,
    ProducerData,
    ProducerInfo,
    ProducerTableInfo,
    SubscriptionData,
    UnlockBatchRequestBody,
)
from rocketbroker.common.errors import CodecError
from tests.support.golden_bodies import request_bodies

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
LONG = st.integers(-(2**63), 2**63 - 1)
subscriptions = st.builds(
    SubscriptionData, TEXT, TEXT, LONG, st.lists(TEXT, max_size=3), st.lists(LONG, max_size=3), TEXT, st.booleans()
)
groups = st.builds(
    ConsumerData,
    TEXT,
    st.sampled_from(ConsumeType),
    st.sampled_from(MessageModel),
    st.sampled_from(ConsumeFromWhere),
    st.lists(subscriptions, max_size=3),
    st.booleans(),
)
heartbeats = st.builds(
    HeartbeatData,
    TEXT,
    st.lists(st.builds(ProducerData, TEXT), max_size=3),
    st.lists(groups, max_size=3),
    st.integers(-(2**31), 2**31 - 1),
    st.booleans(),
)


def sent_by(sender: str) -> list[HeartbeatData]:
    return [HeartbeatData.decode(body.data) for body in request_bodies(34) if body.exchange.request.sender == sender]


@given(heartbeats)
def test_a_heartbeat_survives_its_encoding(heartbeat: HeartbeatData):
    assert HeartbeatData.decode(heartbeat.encode()) == heartbeat


def test_cpp_writes_enums_as_ordinals_and_versions_as_texts():
    heartbeat = sent_by("cpp-rocketmq-0.4.4")[0]
    (group,) = heartbeat.consumer_data_set

    assert (group.consume_type, group.message_model, group.consume_from_where) == (
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    )
    assert [data.sub_version for data in group.subscription_data_set] == [1795256342844] * 2
    assert [data.expression_type for data in group.subscription_data_set] == ["TAG", "TAG"]
    assert [data.tags_set for data in group.subscription_data_set] == [[], ["TagA"]]


def test_go_writes_codes_as_texts_and_versions_in_nanoseconds():
    (group,) = sent_by("go-client-2.1.2")[0].consumer_data_set

    assert [data.code_set for data in group.subscription_data_set] == [[], [2598919]]
    assert all(data.sub_version > 10**18 for data in group.subscription_data_set)


def test_node_leaves_out_the_expression_type():
    (group,) = sent_by("node-ali-ons-3.12.0")[0].consumer_data_set

    assert {data.expression_type for data in group.subscription_data_set} == {"TAG"}


def test_ordinals_are_those_of_java():
    assert list(ConsumeType) == ["CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"]
    assert list(MessageModel) == ["BROADCASTING", "CLUSTERING"]
    assert list(ConsumeFromWhere)[4:] == ["CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP"]


@pytest.mark.parametrize("ordinal", range(6))
def test_each_ordinal_is_read(ordinal: int):
    body = b'{"clientID":"c","consumerDataSet":[{"groupName":"G","consumeFromWhere":%d}]}' % ordinal

    assert HeartbeatData.decode(body).consumer_data_set[0].consume_from_where is list(ConsumeFromWhere)[ordinal]


@pytest.mark.parametrize("value", [b"6", b"-1", b'"CONSUME_FROM_NOWHERE"', b"[]", b"true"])
def test_a_value_that_is_neither_name_nor_ordinal_is_named(value: bytes):
    body = b'{"clientID":"c","consumerDataSet":[{"groupName":"G","consumeFromWhere":%b}]}' % value

    with pytest.raises(CodecError, match=r"HeartbeatData: .* at `\$.consumerDataSet\[0\].consumeFromWhere`"):
        HeartbeatData.decode(body)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"", "JSON"),
        (b"[]", "HeartbeatData: Expected `object`, got `array`"),
        (b"{}", "missing required field `clientID`"),
        (b'{"clientID":"c","consumerDataSet":7}', "Expected `array`, got `int`"),
        (b'{"clientID":"c","consumerDataSet":[7]}', "Expected `object`, got `int`"),
        (b'{"clientID":"c","producerDataSet":[{}]}', "missing required field `groupName`"),
        (b'{"clientID":"c","consumerDataSet":' + b"[" * 900 + b"]" * 900 + b"}", "HeartbeatData"),
    ],
)
def test_a_broken_heartbeat_is_rejected_and_the_fault_named(body: bytes, cause: str):
    with pytest.raises(CodecError) as caught:
        HeartbeatData.decode(body)

    assert cause in str(caught.value)


def test_a_check_of_a_filter_carries_the_subscription():
    (body, *_) = request_bodies(46)
    request = CheckClientRequestBody.decode(body.data)

    assert request.subscription_data
    assert request.subscription_data.expression_type == "SQL92"
    assert request.namespace is None


CLIENT = Connection("c@1", "127.0.0.1:5", "GO", 317)


def test_a_producer_group():
    assert ProducerConnection([CLIENT]).encode() == (
        b'{"connectionSet":[{"clientAddr":"127.0.0.1:5","clientId":"c@1","language":"GO","version":317}]}'
    )


def test_a_consumer_group_writes_enums_by_name():
    group = ConsumerConnection(
        [CLIENT],
        {"T": SubscriptionData("T", "*")},
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
    )

    assert b'"consumeFromWhere":"CONSUME_FROM_TIMESTAMP","consumeType":"CONSUME_PASSIVELY",' in group.encode()
    assert ConsumerConnection.decode(group.encode()) == group


def test_all_producers_write_the_address_in_capitals():
    table = ProducerTableInfo({"G": [ProducerInfo("c@1", "127.0.0.1:5", "JAVA", 513, 9)]})

    assert table.encode() == (
        b'{"data":{"G":[{"clientId":"c@1","language":"JAVA","lastUpdateTimestamp":9,"remoteIP":"127.0.0.1:5","version":513}]}}'
    )
    assert ProducerTableInfo.decode(table.encode()) == table


def test_the_consumers_of_a_group():
    assert GetConsumerListByGroupResponseBody(["c@1", "c@2"]).encode() == b'{"consumerIdList":["c@1","c@2"]}'


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
