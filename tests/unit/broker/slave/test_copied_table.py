from rocketbroker.broker.slave.copied_table import CopiedTables
from rocketbroker.codec.remoting.bodies.slave_tables import TimerMetric, TimerMetricsSerializeWrapper
from tests.support.golden_store import files


def test_a_table_is_written_when_it_differs(tmp_path):
    written: list[object] = []
    metrics = CopiedTables.within(tmp_path, written.append).timer_metrics
    content = TimerMetricsSerializeWrapper({"T": TimerMetric(3, 5)})

    metrics.follow(content)
    metrics.follow(TimerMetricsSerializeWrapper({"T": TimerMetric(3, 5)}))

    assert written == [metrics]
    assert metrics.content is content


def test_rocketmq_files_are_read(tmp_path):
    data = files("clean")["config/timermetrics"]
    (tmp_path / "timermetrics").write_bytes(data)
    metrics = CopiedTables.within(tmp_path).timer_metrics

    assert metrics.load()
    assert "StDelay" in metrics.content.timing_count
    assert len(metrics.encode()) == len(data)


def test_a_missing_file_is_an_empty_table(tmp_path):
    modes = CopiedTables.within(tmp_path).message_request_modes

    assert not modes.load()
    assert modes.content.message_request_mode_map == {}
