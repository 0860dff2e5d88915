from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.bodies.offset import (
    ConsumeQueueData,
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    GetConsumerStatusBody,
    QueryConsumeQueueResponseBody,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
)

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
