import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import ClientError, TopicRouteError
from rocketbroker.codec.remoting.bodies.route import BrokerData, ClusterInfo, TopicRouteData
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.scripted_server import Script, name_server

BROKERS = {
    "a": BrokerData("East", "a", {0: "a:1", 1: "a:2", 2: "a:3"}),
    "b": BrokerData("East", "b", {0: "b:1"}),
    "c": BrokerData("West", "c", {1: "c:2"}),
    "d": BrokerData("West", "d", {1: "d:2"}),
}
# A broker that has left stays in the table of clusters for a moment.
CLUSTERS = {"East": ["b", "a", "gone"], "West": ["c", "d"], "Empty": []}
INFO: dict[int, Script] = {
    RequestCode.GET_BROKER_CLUSTER_INFO: lambda _fields, _body: response(body=ClusterInfo(BROKERS, CLUSTERS).encode())
}


async def test_slaves_are_returned_by_their_master_and_those_without_one_together():
    async with name_server({}, INFO) as server, AdminClient(server.address) as admin:
        assert await admin.fetch_master_and_slave_addresses("East") == {"a:1": ["a:2", "a:3"], "b:1": []}
        assert await admin.fetch_master_and_slave_addresses("West") == {None: ["c:2", "d:2"]}
        with pytest.raises(ClientError, match="cluster 'No' does not exist; the name server knows: East, Empty, West"):
            await admin.fetch_master_and_slave_addresses("No")


async def test_a_cluster_without_a_master_is_an_error():
    async with name_server({}, INFO) as server, AdminClient(server.address) as admin:
        assert await admin.fetch_master_addresses("East") == {"a": "a:1", "b": "b:1"}
        assert admin.without_master == set()
        with pytest.raises(ClientError, match="cluster 'West' has no master; brokers with slaves only: c, d"):
            await admin.fetch_master_addresses("West")
        with pytest.raises(ClientError, match="cluster 'Empty' has no master; brokers with slaves only: none"):
            await admin.fetch_master_addresses("Empty")


async def test_a_broker_without_a_master_is_noted():
    info = ClusterInfo(BROKERS, {"North": ["b", "c"]}).encode()
    scripts: dict[int, Script] = {RequestCode.GET_BROKER_CLUSTER_INFO: lambda _fields, _body: response(body=info)}
    async with name_server({}, scripts) as server, AdminClient(server.address) as admin:
        assert await admin.fetch_master_addresses("North") == {"b": "b:1"}
        assert admin.without_master == {"c"}


async def test_a_topic_is_in_the_clusters_of_all_its_brokers():
    routes = {
        "T": TopicRouteData(None, [], [BROKERS["a"], BROKERS["c"]]),
        "U": TopicRouteData(None, [], [BROKERS["b"]]),
    }
    async with name_server(routes, INFO) as server, AdminClient(server.address) as admin:
        assert await admin.get_topic_cluster_list("T") == ["East", "West"]
        assert await admin.get_topic_cluster_list("U") == ["East"]
        with pytest.raises(TopicRouteError):
            await admin.get_topic_cluster_list("No")


async def test_name_servers_are_those_that_were_given():
    async with AdminClient("127.0.0.1:1;127.0.0.1:2") as admin:
        assert await admin.name_server_addresses() == ("127.0.0.1:1", "127.0.0.1:2")
