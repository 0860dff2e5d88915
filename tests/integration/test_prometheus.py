"""The Grafana board and the alert rules, with a real Prometheus that reads a cluster of ours."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rocketbroker.app.mqadmin.cli import app
from tests.support.metrics_script import GROUP, TOPIC, MetricsScript
from tests.support.our_servers import BOOT_LIMIT, BOOTED, OurServer, OurServers
from tests.support.ports import LOOPBACK, free_ports
from tests.support.private_disk import PrivateDisk
from tests.support.prometheus import Prometheus, check_rules, require_prometheus
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

DISK_SIZE = 96 << 20
PULL_MESSAGE, SEND_MESSAGE_V2, CONSUMER_SEND_MSG_BACK = 11, 310, 36
LIMIT_S = 120
# Rules as an operator gets them, with thresholds that a test reaches.
QUICK = ("--for", "0s", "--lagMessages", "3", "--lagSeconds", "1", "--diskRatio", "0.01")


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


class Cluster:
    """A name server, a master with its slave, and a broker on a small disk, read by a Prometheus."""

    def __init__(self, home: Path, disk: PrivateDisk) -> None:
        self.disk = disk
        self.servers = OurServers(home)
        ports = [free_ports() for _ in range(4)]
        exporter: list[dict[str, Any]] = [
            {"metricsExporterType": "PROM", "metricsPromExporterPort": port} for port in ports
        ]
        self.namesrv = self.servers.namesrv(**exporter[0])
        address = self.namesrv.address
        self.master = self.servers.broker(address, None, **exporter[1], flushDiskType="SYNC_FLUSH")
        self.slave = self.servers.broker(address, None, **exporter[2], brokerRole="SLAVE", brokerId=1)
        self.small = self._small_broker(address, exporter[3])
        self.script = MetricsScript(self.master.address)
        targets = {f"{LOOPBACK}:{port}": "rocketmq" for port in ports}
        self.slave_target = f"{LOOPBACK}:{ports[2]}"
        self.prometheus = Prometheus(home / "prometheus", targets, printed("alerts", *QUICK))

    def _small_broker(self, namesrv: str, exporter: dict[str, Any]) -> OurServer:
        settings = {
            **exporter, "brokerName": "broker-b", "diskMaxUsedSpaceRatio": 10, "diskSpaceCleanForciblyRatio": 80,
            "diskSpaceWarningLevelRatio": 85, "cleanResourceInterval": 200, "cleanFileForciblyEnable": "false",
            "mappedFileSizeCommitLog": 4 << 20, "mappedFileSizeConsumeQueue": 20_000,
            "maxHashSlotNum": 1_000, "maxIndexNum": 4_000,
        }  # fmt: skip
        broker = self.servers.launch_broker(namesrv, self.disk.path / "store", settings, runner=self.disk.runner)
        broker.wait_for(BOOTED, BOOT_LIMIT)
        return broker

    def make_traffic(self) -> None:
        """Send and consume, refuse a pull, and make a dead letter."""
        self.script.run()
        sent = self.script.send("")
        with RawClient(self.master.address) as client:
            unknown = {
                "consumerGroup": GROUP, "topic": "Unknown", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
                "sysFlag": "0", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
            }  # fmt: skip
            assert client.ask(PULL_MESSAGE, unknown).code != 0
            back = {
                "offset": str(int(sent["msgId"][-16:], 16)), "group": GROUP, "delayLevel": "-1",
                "originMsgId": sent["msgId"], "originTopic": TOPIC,
            }  # fmt: skip
            answer = client.ask(CONSUMER_SEND_MSG_BACK, back)
            assert answer.code == 0, answer.remark

    def close(self) -> None:
        self.script.close()
        self.servers.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require_prometheus()
    with PrivateDisk(DISK_SIZE) as disk:
        made = Cluster(tmp_path_factory.mktemp("watched"), disk)
        try:
            with made.prometheus:
                made.make_traffic()
                yield made
        finally:
            made.close()


def queries() -> dict[str, str]:
    """Return the queries of the board by panel and legend, as Grafana sends them for all clusters and nodes."""
    found = {}
    for panel in json.loads(printed("grafana"))["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$cluster", ".*").replace("$node", ".*")
            found[f"{panel['title']}: {target['legendFormat']}"] = text.replace("$__rate_interval", "1m")
    return found


def test_rules_pass_the_check_of_promtool(tmp_path: Path):
    require_prometheus()
    for options in ((), QUICK, ("--job", 'a "quoted\\w+')):
        path = tmp_path / "rules.yml"
        path.write_text(printed("alerts", *options))
        assert "SUCCESS" in check_rules(path)


def test_each_query_of_the_board_has_samples(cluster: Cluster):
    empty = set(queries())

    def look() -> bool:
        empty.difference_update([each for each in empty if cluster.prometheus.query(queries()[each])])
        return not empty

    wait_until(look, f"samples of {empty}", LIMIT_S, 1.0)


def test_variables_of_the_board_are_labels(cluster: Cluster):
    (series, *_) = cluster.prometheus.query("rocketmq_topic_number")
    assert {"cluster", "node_id"} <= series["metric"].keys()


def test_a_group_that_lags_is_an_alert(cluster: Cluster):
    cluster.prometheus.wait_for_alert("RocketMQConsumerLag")
    cluster.prometheus.wait_for_alert("RocketMQConsumerLate")


def test_a_dead_letter_is_an_alert(cluster: Cluster):
    cluster.prometheus.wait_for_alert("RocketMQDeadLetters")


def test_a_full_disk_is_an_alert(cluster: Cluster):
    assert "RocketMQDiskFull" not in cluster.prometheus.firing()
    ballast = cluster.disk.seen_from_here / "ballast"
    ballast.write_bytes(bytes(DISK_SIZE * 80 // 100))
    cluster.prometheus.wait_for_alert("RocketMQDiskFull")
    ballast.unlink()
    wait_until(lambda: "RocketMQDiskFull" not in cluster.prometheus.firing(), "the alert ends", LIMIT_S)


def test_a_dead_slave_is_an_alert(cluster: Cluster):
    cluster.prometheus.wait_for_samples("rocketbroker_replication_slaves == 1")
    assert not {"RocketMQSlaveLost", "RocketMQServerDown"} & cluster.prometheus.firing()
    cluster.slave.kill()
    cluster.prometheus.wait_for_alert("RocketMQSlaveLost")
    cluster.prometheus.wait_for_alert("RocketMQServerDown")


def test_rules_are_evaluated_without_errors(cluster: Cluster):
    cluster.prometheus.wait_for_samples('up{job="rocketmq"}')
    assert cluster.prometheus.errors() == []
