"""The Grafana board and the alert rules, with a real Prometheus that reads a cluster of ours."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.private_disk import PrivateDisk
from tests.support.prometheus import check_rules, require_prometheus
from tests.support.waiting import wait_until
from tests.support.watched_cluster import DISK_SIZE, QUICK, WatchedCluster, printed, queries

pytestmark = pytest.mark.long

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
# By series: a slave, a broker and a group that are lost after an hour and a half, a master at another address since
# then, one that never had a slave, and the group of a broker that is down.
LONG_SERIES = {
    'up{instance="a"}': "1x500",
    'up{instance="b"}': "1x3 0x500",
    'rocketbroker_replication_slaves{cluster="C",node_id="lost",instance="a"}': "1x3 0x500",
    'rocketbroker_replication_slaves{cluster="C",node_id="moved",instance="a"}': "1x3 _x500",
    'rocketbroker_replication_slaves{cluster="C",node_id="moved",instance="c"}': "_x4 1x500",
    'rocketbroker_replication_slaves{cluster="C",node_id="alone",instance="a"}': "0x500",
    'rocketbroker_namesrv_brokers{node_id="n",instance="a"}': "4x3 3x500",
    'rocketmq_consumer_connections{cluster="C",instance="a",consumer_group="gone",is_system="false"}': "1x3 _x500",
    'rocketmq_consumer_connections{cluster="C",instance="a",consumer_group="there",is_system="false"}': "1x500",
    'rocketmq_consumer_connections{cluster="C",instance="b",consumer_group="down",is_system="false"}': "1x3 _x500",
}


def check_what_is_lost(folder: Path, options: Sequence[str], expected: dict[int, list[str]]) -> None:
    """Let promtool look which slaves, brokers and groups rules miss after some hours."""
    name = "label_join(ALERTS{alertname=~'.*(Lost|Unregistered|Gone)'}, 'name', '', 'node_id', 'consumer_group')"
    looks = [
        {
            "expr": f"count by (name) ({name})",
            "eval_time": f"{hours}h",
            "exp_samples": [{"labels": f'{{name="{each}"}}', "value": 1} for each in names],
        }
        for hours, names in expected.items()
    ]
    series = [{"series": name, "values": values} for name, values in LONG_SERIES.items()]
    tests = {"interval": "30m", "input_series": series, "promql_expr_test": looks}
    (folder / "rules.yml").write_text(printed("alerts", *options))
    content = {"rule_files": ["rules.yml"], "evaluation_interval": "30m", "tests": [tests]}
    (folder / "tests.yml").write_text(json.dumps(content))  # JSON is YAML
    assert "SUCCESS" in check_rules(folder / "tests.yml", "test")


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


def test_what_is_lost_is_missed_for_a_week(tmp_path: Path):
    require_prometheus()
    check_what_is_lost(tmp_path, (), {1: [], 3: ["lost", "n", "gone"], 168: ["lost", "n", "gone"], 200: []})


def test_expected_numbers_are_missed_for_ever(tmp_path: Path):
    require_prometheus()
    options = ("--slaves", "1", "--brokers", "3", "--remember", "1d")
    check_what_is_lost(tmp_path, options, {1: ["alone"], 25: ["lost", "alone", "gone"], 200: ["lost", "alone"]})


def test_each_query_of_the_board_has_samples(cluster: WatchedCluster):
    asked = queries()
    empty = set(asked)

    def look() -> bool:
        empty.difference_update([each for each in empty if cluster.prometheus.query(asked[each])])
        return not empty

    wait_until(look, f"samples of {empty}", LIMIT_S, 1.0)


def test_variables_of_the_board_are_labels(cluster: WatchedCluster):
    cluster.prometheus.wait_for_samples("rocketmq_topic_number")
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
    # A scrape that took longer than a second counts as a server that is down.
    both = {"RocketMQSlaveLost", "RocketMQServerDown"}
    wait_until(lambda: not both & cluster.prometheus.firing(), "all servers are up", LIMIT_S)
    cluster.slave.kill()
    cluster.prometheus.wait_for_alert("RocketMQSlaveLost")
    cluster.prometheus.wait_for_alert("RocketMQServerDown")


def test_rules_are_evaluated_without_errors(cluster: WatchedCluster):
    cluster.prometheus.wait_for_samples('up{job="rocketmq"}')
    assert cluster.prometheus.errors() == []
