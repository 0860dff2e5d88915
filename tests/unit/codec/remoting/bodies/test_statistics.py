from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.bodies.statistics import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)

QUEUE = MessageQueue("T", "b", 3)
KEY = b'{"brokerName":"b","queueId":3,"topic":"T"}'


def test_a_topic_has_a_row_by_queue():
    table = TopicStatsTable({QUEUE: TopicOffset(1, 9, 5)}, 0.5)

    assert table.encode() == (
        b'{"offsetTable":{%b:{"lastUpdateTimestamp":5,"maxOffset":9,"minOffset":1}},"topicPutTps":0.5}' % KEY
    )
    assert TopicStatsTable.decode(table.encode()) == table


def test_a_group_has_a_row_by_queue():
    stats = ConsumeStats({QUEUE: OffsetWrapper(9, 4, 6, 7)})

    assert stats.encode() == (
        b'{"consumeTps":0.0,"offsetTable":{%b:{"brokerOffset":9,"consumerOffset":4,"lastTimestamp":7,"pullOffset":6}}}'
        % KEY
    )
    assert ConsumeStats.decode(stats.encode()) == stats


def test_a_broker_has_a_list_of_groups():
    stats = ConsumeStatsList([{"G": [ConsumeStats({QUEUE: OffsetWrapper()})]}, {"H": []}], "127.0.0.1:1", 5)

    assert ConsumeStatsList.decode(stats.encode()) == stats
    assert stats.encode().endswith(b'{"H":[]}],"totalDiff":5,"totalInflightDiff":0}')


def test_small_and_large_rates_are_written_as_java_does():
    data = BrokerStatsData(BrokerStatsItem(1, 1e-4, 1e7), BrokerStatsItem(), BrokerStatsItem(2, 2.0, 0.1))

    assert b'"statsMinute":{"avgpt":1.0E7,"sum":1,"tps":1.0E-4}' in data.encode()
    assert BrokerStatsData.decode(data.encode()) == data


def test_a_time_span_without_its_texts():
    body = QueryConsumeTimeSpanBody([QueueTimeSpan(QUEUE, 1, 2, 3, 4)])

    assert body.encode() == (
        b'{"consumeTimeSpanSet":[{"consumeTimeStamp":3,"delayTime":4,"maxTimeStamp":2,"messageQueue":%b,"minTimeStamp":1}]}'
        % KEY
    )
