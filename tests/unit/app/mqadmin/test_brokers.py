import pytest
from typer.testing import CliRunner

from rocketbroker.app.mqadmin.brokers import ha_status
from rocketbroker.app.mqadmin.cli import app
from rocketbroker.app.mqadmin.command import print_report
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.offset import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RemotingConnectError
from tests.support.admin_schemas import checked_json
from tests.support.admin_stage import admin_stage
from tests.support.scripted_server import Script

SLAVES = [
    HAConnectionRuntimeInfo("192.0.2.2:4000", 900, 100, True, 2048, 1000),
    HAConnectionRuntimeInfo("192.0.2.3:4000", 0, 1000, False, 0, 0),
]
STATES = {
    "master:1": HARuntimeInfo(True, 1000, 1, SLAVES),
    "slave:1": HARuntimeInfo(
        False, ha_client_runtime_info=HAClientRuntimeInfo("192.0.2.1:10912 (it is ahead)", 1024, 900, 0, 1000)
    ),
}


class FakeAdmin(AdminClient):
    """A client of a master, a slave, and a broker that is gone."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1")
        self.states = STATES

    async def fetch_broker_addresses(self, cluster: str | None = None) -> list[str]:
        assert cluster in {None, "C"}
        return [*STATES, "gone:1"]

    async def get_broker_ha_status(self, address: str) -> HARuntimeInfo:
        if address not in self.states:
            raise RemotingConnectError("refused")
        return self.states[address]


async def test_a_master_shows_its_slaves(capsys: pytest.CaptureFixture[str]):
    print_report(await ha_status(FakeAdmin(), "master:1"), as_json=False)

    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["#MasterAddr", "master:1"],
        ["#MasterCommitLogMaxOffset", "1000"],
        ["#SlaveNum", "2"],
        ["#InSyncSlaveNum", "1"],
        ["#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status", "#TransferFromWhere"],
        ["192.0.2.2:4000", "900", "100", "2.00", "OK", "1000"],
        ["192.0.2.3:4000", "0", "1000", "0.00", "Fall", "Behind", "0"],
        [],
    ]


async def test_a_master_without_slaves_shows_the_columns_as_apaches_tool_does(capsys: pytest.CaptureFixture[str]):
    admin = FakeAdmin()
    admin.states = {"alone:1": HARuntimeInfo(True, 1000, 0, [])}
    print_report(await ha_status(admin, "alone:1"), as_json=False)

    assert capsys.readouterr().out.splitlines()[-2].split()[:2] == ["#SlaveAddr", "#SlaveAckOffset"]


async def test_a_slave_shows_why_it_does_not_follow(capsys: pytest.CaptureFixture[str]):
    print_report(await ha_status(FakeAdmin(), "slave:1"), as_json=False)

    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        "#SlaveAddr  slave:1",
        "#MasterAddr  192.0.2.1:10912 (it is ahead)",
        "#CommitLogMaxOffset  900",
        "#TransferSpeed(KB/s)  1.00",
        "#LastReadTime  -",
    ]
    assert lines[5].endswith(":01,000")


async def test_the_brokers_of_a_cluster_are_asked_and_one_that_is_gone_is_a_failure(
    capsys: pytest.CaptureFixture[str],
):
    report = await ha_status(FakeAdmin(), None, "C")

    assert report.failures == ["gone:1: refused"]
    print_report(report, as_json=True)
    brokers = checked_json("haStatus", capsys.readouterr().out)["brokers"]
    assert [row["addr"] for row in brokers] == ["master:1", "slave:1", "gone:1"]
    assert brokers[0]["status"]["inSyncSlaveNums"] == 1
    assert brokers[1]["status"]["haClientRuntimeInfo"]["maxOffset"] == 900
    assert (brokers[2]["status"], brokers[2]["error"]) == (None, "refused")


def test_a_broker_and_a_cluster_are_wrong_usage():
    done = CliRunner().invoke(app, ["haStatus", "-b", "127.0.0.1:1", "-c", "C", "-n", "127.0.0.1:2"])
    assert done.exit_code == 2
    assert "either -b (one broker) or -c" in " ".join(done.stderr.split())


def runtime(**values: str) -> Script:
    return lambda _fields, _body: response(body=KVTable(values).encode())


async def test_runtime_statistics_are_listed_by_name_and_with_the_address_for_a_cluster():
    one: dict[int, Script] = {RequestCode.GET_BROKER_RUNTIME_INFO: runtime(putTps="1.0 2.0", bootTimestamp="5")}
    async with admin_stage({"a": one, "b": {}}) as stage:
        alone = await stage.call("brokerStatus", "-b", stage.address("a"))
        of_cluster = await stage.call("brokerStatus", "-c", "DefaultCluster")

        assert alone == (0, f"{'bootTimestamp':32}: 5\n{'putTps':32}: 1.0 2.0\n", "")
        assert of_cluster.out.splitlines()[1] == f"{stage.address('a'):24} {'putTps':32}: 1.0 2.0"
        assert of_cluster.code == 1
        assert of_cluster.err.startswith(f"mqadmin: {stage.address('b')}: ")
        assert (await stage.json("brokerStatus", "-b", stage.address("a")))["brokers"][0]["error"] is None
