from rocketbroker.broker.slave.slave_synchronize import CopiedTables
from rocketbroker.codec.remoting import fastjson
from rocketbroker.processor.admin.get_timer_metrics import GetTimerMetricsProcessor
from tests.support.processor_calls import call, recorded


def test_recorded_tables(tmp_path):
    metrics = CopiedTables.within(tmp_path).timer_metrics
    counts = set()
    for _, theirs in recorded(61):
        metrics.decode(fastjson.dumps(theirs.body))
        assert call(GetTimerMetricsProcessor(metrics).process) == theirs
        counts.update(theirs.body["timingCount"])
    assert "GoldenTopic" in counts


def test_a_master_has_no_counts(tmp_path):
    answer = call(GetTimerMetricsProcessor(CopiedTables.within(tmp_path).timer_metrics).process)

    assert answer.body == {"dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0}, "timingCount": {}}
