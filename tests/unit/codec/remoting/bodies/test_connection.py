from rocketbroker.codec.remoting.bodies.connection import (
    Connection,
    ConsumerConnection,
    GetConsumerListByGroupResponseBody,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from rocketbroker.codec.remoting.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData

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
