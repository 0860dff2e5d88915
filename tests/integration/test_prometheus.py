"""The Grafana board and the alert rules, with a real Prometheus that reads a cluster of ours."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.private_disk import PrivateDisk
from tests.support.prometheus import check_rules, require_prometheus
from tests.support.waiting import wait_until
from tests.support.watched_cluster import DISK_SIZE, QUICK, WatchedCluster, printed, queries

LIMIT_S = 120


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
