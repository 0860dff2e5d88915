"""``mqadmin popStatus`` at a running broker with messages in flight."""

from contextlib import ExitStack, closing
from pathlib import Path

from typer.testing import CliRunner

from rocketbroker.app.mqadmin.cli import app
from tests.support.admin_schemas import checked_json
from tests.support.our_servers import Cluster, OurServers
from tests.support.pop_script import GROUP, PopScript, fields_of, handle_of


def rows(cluster: Cluster, *options: str) -> dict[int, dict[str, int]]:
    """Return what ``mqadmin popStatus --json`` shows, by queue."""
    arguments = ["popStatus", "-n", cluster.address, "-g", GROUP, "-t", "PopStatus", "--json", *options]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    return {row["queueId"]: row for row in checked_json("popStatus", done.stdout)["queues"]}


def fate(cluster: Cluster, offset: int) -> str:
    """Return the outcome that ``mqadmin why`` names for a message of queue 0."""
    arguments = ["why", GROUP, "PopStatus", "-n", cluster.address, "-o", f"0:{offset}", "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    return str(checked_json("why", done.stdout)["outcome"])


def test_messages_in_flight_are_shown_by_queue(tmp_path: Path):
    with ExitStack() as closed:
        servers = closed.enter_context(closing(OurServers(tmp_path)))
        namesrv = servers.namesrv()
        cluster = Cluster(namesrv, servers.broker(namesrv.address))
        script = closed.enter_context(closing(PopScript(cluster.broker.address)))
        script.make("PopStatus", 5, queues=2)
        popped = script.pop("", "PopStatus", maxMsgNums=3).answer()
        returns = int(fields_of(popped)["popTime"]) + int(fields_of(popped)["invisibleTime"])
        seen = {"topic": "PopStatus", "brokerName": "broker-a", "queueId": 0}

        assert rows(cluster) == {0: {**seen, "waiting": 2, "inFlight": 3, "nextReturn": returns}}
        assert fate(cluster, 0) == fate(cluster, 2) == "inFlight"
        assert script.acknowledge("", "PopStatus", 0, handle_of(popped, 0)).answer().code == 0
        assert rows(cluster)[0]["inFlight"] == 2
        for offset in (1, 2):
            assert script.acknowledge("", "PopStatus", offset, handle_of(popped, offset)).answer().code == 0
        assert rows(cluster) == {0: {**seen, "waiting": 2, "inFlight": 0, "nextReturn": 0}}
        assert (fate(cluster, 2), fate(cluster, 3)) == ("consumed", "noClient")


def test_messages_of_an_ordered_batch_are_in_flight(tmp_path: Path):
    with ExitStack() as closed:
        servers = closed.enter_context(closing(OurServers(tmp_path)))
        namesrv = servers.namesrv()
        cluster = Cluster(namesrv, servers.broker(namesrv.address))
        script = closed.enter_context(closing(PopScript(cluster.broker.address)))
        script.make("PopStatus", 5)
        popped = script.pop("", "PopStatus", maxMsgNums=3, order="true").answer()
        returns = int(fields_of(popped)["popTime"]) + int(fields_of(popped)["invisibleTime"])
        seen = {"topic": "PopStatus", "brokerName": "broker-a", "queueId": 0}

        assert rows(cluster) == {0: {**seen, "waiting": 2, "inFlight": 3, "nextReturn": returns}}
        assert script.acknowledge("", "PopStatus", 1, handle_of(popped, 1, True)).answer().code == 0
        assert rows(cluster) == {0: {**seen, "waiting": 2, "inFlight": 2, "nextReturn": returns}}
        progress = CliRunner().invoke(
            app, ["consumerProgress", "-n", cluster.address, "-g", GROUP, "-t", "PopStatus", "--json"]
        )
        assert checked_json("consumerProgress", progress.stdout)["inflightTotal"] == 2
        for offset in (0, 2):
            assert script.acknowledge("", "PopStatus", offset, handle_of(popped, offset, True)).answer().code == 0
        assert rows(cluster) == {0: {**seen, "waiting": 2, "inFlight": 0, "nextReturn": 0}}
