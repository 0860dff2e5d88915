from rocketbroker.broker.slave.slave_synchronize import CopiedTables
from rocketbroker.codec.remoting import fastjson
from rocketbroker.processor.admin.get_all_message_request_mode import GetAllMessageRequestModeProcessor
from tests.support.processor_calls import call, recorded


def test_recorded_tables(tmp_path):
    modes = CopiedTables.within(tmp_path).message_request_modes
    answers = list(recorded(402))
    for _, theirs in answers:
        modes.decode(fastjson.dumps(theirs.body))
        assert call(GetAllMessageRequestModeProcessor(modes).process) == theirs
    assert answers


def test_modes_by_topic_and_group(tmp_path):
    modes = CopiedTables.within(tmp_path).message_request_modes
    text = b'{"messageRequestModeMap":{"T":{"G":{"consumerGroup":"G","mode":"POP","popShareQueueNum":2,"topic":"T"}}}}'
    modes.decode(text)

    assert call(GetAllMessageRequestModeProcessor(modes).process).body == fastjson.loads(text)
