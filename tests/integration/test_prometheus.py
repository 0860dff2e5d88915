"""The Grafana board and the alert rules, with a real Prometheus that reads a cluster of ours."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.private_disk import PrivateDisk
from tests.support.prometheus import check_rules, require_prometheus
from tests.support.waiting import wait_until
from tests.support.watched_cluster import DISK_SIZE, QUICK, WatchedCluster, printed, queries

LIMIT_S = 120
# A count that began again, a first dead letter, an old count of a server that is new to Prometheus, and one lag that a
# master and its slave report.
RULE_TESTS = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'up{job="rocketmq",instance="a"}', values: "1x30"}
      - {series: 'up{job="rocketmq",instance="b"}', values: "_x14 1x30"}
      - series: 'rocketmq_send_to_dlq_messages_total{cluster="C",instance="a",consumer_group="again"}'
        values: "100x14 5x30"
      - series: 'rocketmq_send_to_dlq_messages_total{cluster="C",instance="a",consumer_group="first"}'
        values: "_x14 3x30"
      - series: 'rocketmq_send_to_dlq_messages_total{cluster="C",instance="b",consumer_group="old"}'
        values: "_x14 7x30"
      - series: 'rocketmq_consumer_lag_messages{cluster="C",node_id="n",instance="a",consumer_group="g",topic="t"}'
        values: "60000x30"
      - series: 'rocketmq_consumer_lag_messages{cluster="C",node_id="n",instance="b",consumer_group="g",topic="t"}'
        values: "60000x30"
    promql_expr_test:
      - expr: count by (consumer_group) (ALERTS{alertname="RocketMQDeadLetters"})
        eval_time: 17m
        exp_samples:
          - {labels: '{consumer_group="again"}', value: 1}
          - {labels: '{consumer_group="first"}', value: 1}
      - expr: ALERTS{alertname="RocketMQDeadLetters"}
        eval_time: 29m
      - expr: ALERTS{alertname="RocketMQConsumerLag"}
        eval_time: 20m
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedCluster]:
    require_prometheus()
    with PrivateDisk(DISK_SIZE) as disk:
        made = WatchedCluster(tmp_path_factory.mktemp("watched"), disk)
        try:
            with made.prometheus:
                made.make_traffic()
                yield made
        finally:
            made.close()


def test_rules_pass_the_check_of_promtool(tmp_path: Path):
    require_prometheus()
    for options in ((), QUICK, ("--job", 'a "quoted\\w+')):
        path = tmp_path / "rules.yml"
        path.write_text(printed("alerts", *options))
        assert "SUCCESS" in check_rules(path)


def test_rules_tell_news_from_old_counts_and_masters_from_slaves(tmp_path: Path):
    require_prometheus()
    (tmp_path / "rules.yml").write_text(printed("alerts"))
    (tmp_path / "tests.yml").write_text(RULE_TESTS)

    assert "SUCCESS" in check_rules(tmp_path / "tests.yml", "test")


def test_each_query_of_the_board_has_samples(cluster: WatchedCluster):
    empty = set(queries())

    def look() -> bool:
        empty.difference_update([each for each in empty if cluster.prometheus.query(queries()[each])])
        return not empty

    wait_until(look, f"samples of {empty}", LIMIT_S, 1.0)


def test_variables_of_the_board_are_labels(cluster: WatchedCluster):
    (series, *_) = cluster.prometheus.query("rocketmq_topic_number")
    assert {"cluster", "node_id"} <= series["metric"].keys()


def test_a_group_that_lags_is_an_alert(cluster: WatchedCluster):
    cluster.prometheus.wait_for_alert("RocketMQConsumerLag")
    cluster.prometheus.wait_for_alert("RocketMQConsumerLate")


def test_a_dead_letter_is_an_alert(cluster: WatchedCluster):
    # A Prometheus that finds an old count raises no alarm.
    cluster.prometheus.wait_for_samples("rocketmq_send_to_dlq_messages_total == 1")
    cluster.make_dead_letter()
    cluster.prometheus.wait_for_alert("RocketMQDeadLetters")


def test_a_full_disk_is_an_alert(cluster: WatchedCluster):
    assert "RocketMQDiskFull" not in cluster.prometheus.firing()
    ballast = cluster.disk.seen_from_here / "ballast"
    ballast.write_bytes(bytes(DISK_SIZE * 80 // 100))
    cluster.prometheus.wait_for_alert("RocketMQDiskFull")
    ballast.unlink()
    wait_until(lambda: "RocketMQDiskFull" not in cluster.prometheus.firing(), "the alert ends", LIMIT_S)


def test_a_dead_slave_is_an_alert(cluster: WatchedCluster):
    cluster.prometheus.wait_for_samples("rocketbroker_replication_slaves == 1")
    assert not {"RocketMQSlaveLost", "RocketMQServerDown"} & cluster.prometheus.firing()
    cluster.slave.kill()
    cluster.prometheus.wait_for_alert("RocketMQSlaveLost")
    cluster.prometheus.wait_for_alert("RocketMQServerDown")


def test_rules_are_evaluated_without_errors(cluster: WatchedCluster):
    cluster.prometheus.wait_for_samples('up{job="rocketmq"}')
    assert cluster.prometheus.errors() == []
