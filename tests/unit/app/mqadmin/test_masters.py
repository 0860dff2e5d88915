"""Sub-commands for the masters of a cluster, where brokers have slaves only."""

import pytest

from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.admin_stage import admin_stage
from tests.support.scripted_server import Script

# Each would otherwise do nothing and report success.
COMMANDS = [
    "deleteTopic -t T --yes",
    "updateTopic -t T -o true",
    "updateTopicPerm -t T -p 4",
    "updateSubGroup -g G",
    "updateBrokerConfig -k traceOn -v true",
    "brokerStatus",
    "exportMetadata",
    "exportConfigs",
    "exportMetrics",
]


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_cluster_without_a_master_is_a_failure(command: str):
    async with admin_stage({}, slaves_only=("a", "b")) as stage:
        done = await stage.call(*command.split(), "-c", "DefaultCluster")

    no_master = "mqadmin: cluster 'DefaultCluster' has no master; brokers with slaves only: a, b\n"
    assert done == (1, "", no_master)


async def test_a_broker_without_a_master_is_left_out_and_named():
    status: dict[int, Script] = {
        RequestCode.GET_BROKER_RUNTIME_INFO: lambda _fields, _body: response(body=KVTable({"k": "v"}).encode())
    }
    async with admin_stage({"a": status}, slaves_only=("b",)) as stage:
        done = await stage.call("brokerStatus", "-c", "DefaultCluster")
        shown = [stage.address("a"), "k", ":", "v"]

    assert (done.code, done.rows) == (1, [shown])
    assert done.err == "mqadmin: broker b has slaves only, and was left out\n"


@pytest.mark.parametrize(
    "command",
    [
        "clusterList",
        "haStatus -c DefaultCluster",
        "brokerStatus -c DefaultCluster",
        "getBrokerConfig -c DefaultCluster",
        "updateBrokerConfig -c DefaultCluster -k a -v b",
        "clusterRT -a 2",
    ],
)
async def test_the_row_of_a_dead_broker_fits_the_schema(command: str):
    async with admin_stage({"a": {}}, topics=("a",)) as stage:
        await stage.brokers["a"].stop()
        ((row,),) = [each for each in (await stage.failed_json(*command.split())).values() if isinstance(each, list)]
    assert "connect to 127.0.0.1" in row["error"]


async def test_a_value_of_a_broker_stays_on_its_line():
    status: dict[int, Script] = {
        RequestCode.GET_BROKER_RUNTIME_INFO: lambda _fields, _body: response(body=KVTable({"k": "v\nw : x"}).encode())
    }
    async with admin_stage({"a": status}) as stage:
        done = await stage.call("brokerStatus", "-b", stage.address("a"))
    assert done.out == f"{'k':32}: v\\nw : x\n"


@pytest.mark.parametrize("command", ["cleanUnusedTopic", "brokerStatus", "getBrokerConfig", "updateTopic -t T"])
async def test_an_empty_address_does_not_stand_for_all_brokers(command: str):
    async with admin_stage({"a": {}}) as stage:
        done = await stage.call(*command.split(), "-b", " ")
        assert stage.brokers["a"].asked == []

    assert done.code == 2
    assert "-b is empty; give the address of a broker as HOST:PORT" in " ".join(done.err.split())
