from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.offset import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeStatsList,
    DelayOffsetSerializeWrapper,
    GetConsumerStatusBody,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
    ResetOffsetBody,
    TopicOffset,
    TopicStatsTable,
)
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion

QUEUE = MessageQueue("T", "b", 3)
KEY = b'{"brokerName":"b","queueId":3,"topic":"T"}'


def test_offsets_by_queue_id_have_bare_keys():
    wrapper = ConsumerOffsetSerializeWrapper({"T@G": {2: 5, 0: 7}})

    assert wrapper.encode() == b'{"offsetTable":{"T@G":{2:5,0:7}}}'
    assert ConsumerOffsetSerializeWrapper.decode(wrapper.encode()) == wrapper
    assert QueryCorrectionOffsetBody({0: 1}).encode() == b'{"correctionOffsets":{0:1}}'


def test_older_brokers_send_neither_version_nor_pull_offsets():
    wrapper = ConsumerOffsetSerializeWrapper.decode(b'{"offsetTable":{}}')

    assert (wrapper.data_version, wrapper.pull_offset_table, wrapper.group_topic_map) == (None, None, None)


def test_delays_by_level():
    wrapper = DelayOffsetSerializeWrapper({3: 2}, DataVersion(1))

    assert DelayOffsetSerializeWrapper.decode(wrapper.encode()) == wrapper


def test_offsets_by_queue_have_objects_as_keys():
    assert ResetOffsetBody({QUEUE: 5}).encode() == b'{"offsetTable":{%b:5}}' % KEY
    status = GetConsumerStatusBody(consumer_table={"c@1": {QUEUE: 5}})
    assert status.encode() == b'{"consumerTable":{"c@1":{%b:5}},"messageQueueTable":{}}' % KEY
    assert GetConsumerStatusBody.decode(status.encode()) == status


def test_entries_of_a_consume_queue_leave_out_what_was_not_asked_for():
    body = QueryConsumeQueueResponseBody([ConsumeQueueData(10, 20, -726516768)], 5)

    assert body.encode() == (
        b'{"maxQueueIndex":5,"minQueueIndex":0,'
        b'"queueData":[{"eval":false,"physicOffset":10,"physicSize":20,"tagsCode":-726516768}]}'
    )


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
