import pytest

from rocketbroker.broker.slave.master_client import LogState, MasterNames
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion, KVTable
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig, TopicConfigAndMappingSerializeWrapper
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import CodecError, RemotingError


def at(counter, state=0):
    return DataVersion(1, counter, state)


def test_names_that_the_master_had_and_has_no_longer_are_gone():
    names = MasterNames("topics", {"BUILT_IN"})

    assert names.gone(["BUILT_IN"], at(0), ["BUILT_IN", "A", "B"], at(5)) == []
    assert names.gone(["BUILT_IN", "A", "B", "OWN"], at(5), ["A"], at(6)) == ["B"]
    assert names.version(at(5), at(6)) == at(6)


def test_nothing_is_gone_from_an_older_table():
    names = MasterNames("topics")
    names.gone([], at(0), ["A", "B"], at(5))

    assert names.gone(["A", "B"], at(5), ["B"], at(4)) == []
    assert names.version(at(5), at(4)) == at(5, 1)
    assert names.gone(["A", "B"], at(5, 1), ["B"], at(9)) == [], "kept until the master has it again"


def test_names_come_back_with_the_masters_table():
    names = MasterNames("topics")
    names.gone([], at(0), ["A"], at(5))
    names.gone(["A"], at(5), [], at(0))

    assert names.gone(["A"], at(5, 1), ["A"], at(1)) == []
    assert names.version(at(5, 1), at(1)) == at(1)


def test_a_restart_keeps_what_the_master_had_lost():
    assert MasterNames("topics").gone(["A", "B"], at(5, 1), ["B"], at(100)) == []


@pytest.mark.parametrize("names", [["BUILT_IN"], ["BUILT_IN", "C", "D"]])
def test_a_first_answer_without_any_own_name_deletes_nothing(names):
    assert MasterNames("topics", {"BUILT_IN"}).gone(["A", "BUILT_IN"], at(1), names, at(100)) == []


def test_a_name_in_use_is_not_deleted_by_a_first_answer():
    names = MasterNames("topics")

    assert names.gone(["A", "B", "C", "D"], at(1), ["C", "D"], at(100), {"A", "C"}) == ["B"]
    assert names.gone(["A", "C", "D"], at(100), ["D"], at(101), {"A", "C"}) == ["C"], "the master had it"


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
