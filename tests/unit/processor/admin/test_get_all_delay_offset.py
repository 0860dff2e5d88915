from rocketbroker.codec.remoting import fastjson
from rocketbroker.processor.admin.get_all_delay_offset import GetAllDelayOffsetProcessor
from tests.support.processor_calls import call, recorded


def test_recorded_tables(schedule):
    processor = GetAllDelayOffsetProcessor(schedule)
    tables = set()
    for _, theirs in recorded(45):
        schedule.decode(fastjson.dumps(theirs.body))
        assert call(processor.process) == theirs
        tables.add(tuple(theirs.body["offsetTable"].items()))
    assert ((1, 6), (3, 4)) in tables


def test_levels_are_in_order(schedule):
    schedule.offset_table = {3: 1, 1: 2}
    assert list(call(GetAllDelayOffsetProcessor(schedule).process).body["offsetTable"]) == [1, 3]
