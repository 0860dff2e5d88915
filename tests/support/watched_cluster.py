"""A cluster of ours that a real Prometheus reads, with the board and the rules that mqadmin prints.

Run as a program it records what the board shows of a load of two minutes, for the picture in the manual:

    python -m tests.support.watched_cluster docs/_ext/board.json
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from docs._ext.board_picture import PANELS
from rocketbroker.app.mqadmin.cli import app
from rocketbroker.client import Message, Producer, PushConsumer
from tests.support.grpc_calls import send_once
from tests.support.metrics_script import GROUP, TOPIC, MetricsScript
from tests.support.our_servers import BOOT_LIMIT, BOOTED, OurServer, OurServers, make_topic
from tests.support.ports import LOOPBACK, free_ports
from tests.support.private_disk import PrivateDisk
from tests.support.prometheus import Prometheus
from tests.support.raw_client import RawClient

DISK_SIZE = 96 << 20
OK = 20_000
PULL_MESSAGE, CONSUMER_SEND_MSG_BACK = 11, 36
# Rules as an operator gets them, with thresholds that a test reaches.
QUICK = ("--for", "0s", "--lagMessages", "3", "--lagSeconds", "1", "--diskRatio", "0.01")
# Seconds of the recorded load, and the time in it for which a group stands still.
RECORDED_S, HELD_S = 120, (40, 75)


def printed(*arguments: str) -> str:
    """Return what mqadmin prints."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


class WatchedCluster:
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
        port = free_ports()
        self.grpc_port = f"{LOOPBACK}:{port}"
        grpc: dict[str, Any] = {"grpcServerEnable": "true", "grpcServerPort": port}
        self.master = self.servers.broker(address, None, **exporter[1], **grpc, flushDiskType="SYNC_FLUSH")
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
        """Send and consume, also by gRPC, refuse a pull, and make a dead letter."""
        self.script.run()
        assert send_once(self.grpc_port, TOPIC, b"body") == OK
        self._refuse_and_bury(self.script.send(""))

    def make_dead_letter(self) -> None:
        """Send back one more message as a dead letter."""
        self._refuse_and_bury(self.script.send(""))

    def _refuse_and_bury(self, sent: dict[str, str]) -> None:
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


def queries() -> dict[str, str]:
    """Return the queries of the board by panel and legend, as Grafana sends them for all clusters and nodes."""
    found = {}
    for panel in json.loads(printed("grafana"))["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$cluster", ".*").replace("$node", ".*")
            found[f"{panel['title']}: {target['legendFormat']}"] = text.replace("$__rate_interval", "1m")
    return found


async def _load(namesrv: str, grpc_port: str) -> None:
    """Send and consume, also by gRPC; one group stands still for a while, and catches up."""
    began = time.monotonic()

    async def send_by_grpc() -> None:
        while time.monotonic() < began + RECORDED_S:
            assert await asyncio.to_thread(send_once, grpc_port, "Orders", bytes(400)) == OK
            await asyncio.sleep(0.1)

    async def send() -> None:
        async with Producer("orders", namesrv) as producer:
            while time.monotonic() < began + RECORDED_S:
                await asyncio.gather(
                    *(producer.send(Message(topic, bytes(400))) for topic in ("Orders", "Orders", "Payments"))
                )
                await asyncio.sleep(0.01)

    async def consume(group: str, topic: str, *, is_held: bool) -> None:
        async with PushConsumer(group, namesrv) as consumer:
            await consumer.subscribe(topic)
            async for _ in consumer:
                elapsed = time.monotonic() - began
                if elapsed > RECORDED_S:
                    return
                if is_held and HELD_S[0] < elapsed < HELD_S[1]:
                    await asyncio.sleep(HELD_S[1] - elapsed)

    sending = asyncio.gather(send(), send_by_grpc())
    consuming = [
        asyncio.create_task(consume("billing", "Orders", is_held=True)),
        asyncio.create_task(consume("bank", "Payments", is_held=False)),
    ]
    await sending
    for each in consuming:
        each.cancel()
    await asyncio.gather(*consuming, return_exceptions=True)


def record() -> dict[str, Any]:
    """Return the series of each panel, every two seconds of the load."""
    with tempfile.TemporaryDirectory() as folder, PrivateDisk(DISK_SIZE) as disk:
        cluster = WatchedCluster(Path(folder), disk)
        try:
            with cluster.prometheus as prometheus:
                cluster.make_traffic()
                for topic in ("Orders", "Payments"):
                    make_topic(cluster.master.address, cluster.namesrv.address, topic, 4)
                began = time.time()
                asyncio.run(_load(cluster.namesrv.address, cluster.grpc_port))
                found: dict[str, Any] = {}
                for name, query in queries().items():
                    panel, _, legend = name.partition(": ")
                    short = query.replace("[1m]", "[10s]")
                    for series in prometheus.query_range(short, began, began + RECORDED_S, "2s"):
                        label = legend
                        for key, value in series["metric"].items():
                            label = label.replace("{{" + key + "}}", value)
                        # Of nothing, a percentile is NaN.
                        points = [
                            [round(at - began), float(f"{float(value):.4g}")]
                            for at, value in series["values"]
                            if value != "NaN"
                        ]
                        if points and panel in PANELS:
                            found.setdefault(panel, {})[label] = points
        finally:
            cluster.close()
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(record()) + "\n")
