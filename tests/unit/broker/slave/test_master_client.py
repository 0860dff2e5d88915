import pytest

from rocketbroker.broker.slave.master_client import LogState
from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig, TopicConfigAndMappingSerializeWrapper
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import CodecError, RemotingError


async def test_a_table_that_ends_early_is_no_table(slave, master):
    for number in range(3_000):
        master.topics.update(TopicConfig(f"T{number}"))
    empty = TopicConfigAndMappingSerializeWrapper({}, master.topics.data_version).encode()
    answers = iter([None, empty])

    class Bodies(dict[RequestCode, bytes]):
        def get(self, _code, _default=None):
            return next(answers)

    master.bodies = Bodies()

    with pytest.raises(CodecError, match=r"the table ends after 2,000 of 3,0\d\d entries"):
        await slave.client.topics()


async def test_a_table_of_a_master_without_pages(slave, master):
    master.bodies[RequestCode.GET_ALL_TOPIC_CONFIG] = (
        b'{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"T":{"topicName":"T"}}}'
    )

    answer = await slave.client.topics()

    assert list(answer.topic_config_table) == ["T"]


async def test_an_error_answer_names_the_code(slave, master):
    del master.bodies[RequestCode.GET_ALL_DELAY_OFFSET]

    with pytest.raises(CodecError, match="GET_ALL_DELAY_OFFSET is answered by 1"):
        await slave.client.delay_offsets()


@pytest.mark.parametrize(
    "table",
    [{}, {"bootTimestamp": "1"}, {"commitLogMaxOffset": "5"}, {"bootTimestamp": "1", "commitLogMaxOffset": "-5"}],
)
async def test_a_state_without_start_time_or_end_is_none(slave, master, table):
    master.bodies[RequestCode.GET_BROKER_RUNTIME_INFO] = KVTable(table).encode()

    with pytest.raises(CodecError, match="its start time is"):
        await slave.client.log_state()


async def test_the_state_and_the_records_of_a_log(slave, master):
    master.log, master.records = LogState("7", 300), {200: b"record"}

    assert await slave.client.log_state() == LogState("7", 300)
    assert await slave.client.record(200) == b"record"
    assert await slave.client.record(201) == b""


async def test_an_answer_without_offsets_is_no_empty_table(slave, master):
    master.bodies[RequestCode.GET_ALL_CONSUMER_OFFSET] = b'{"dataVersion":{"counter":1}}'

    with pytest.raises(CodecError, match="it has no offsetTable"):
        await slave.client.consumer_offsets()


async def test_a_master_that_is_gone(slave, master):
    await master.server.stop()

    with pytest.raises(RemotingError):
        await slave.client.topics()
