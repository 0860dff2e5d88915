"""Facts of a cluster: which groups are looked at."""

from collections.abc import Sequence

import pytest
import typer

from rocketbroker.app.mqadmin.checks import cluster_facts
from rocketbroker.app.mqadmin.checks.cluster_facts import NameServerFacts, collect
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.codec.remoting.bodies.client import ConsumerConnection
from rocketbroker.codec.remoting.bodies.offset import ConsumeStats, HARuntimeInfo
from rocketbroker.codec.remoting.bodies.route import BrokerData, ClusterInfo
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.common.errors import RemotingTimeoutError, RocketBrokerError

CLUSTERS = ClusterInfo({"broker-a": BrokerData("C", "broker-a", {0: "a:1"})}, {"C": ["broker-a"]})
# Group a pops topics T and U; a_T is a group beside.
TOPICS = {"T", "U", "%RETRY%a", "%RETRY%a_T", "%RETRY%a_U"}


class Admin(AdminClient):
    """Administrator of one broker with groups, which it may not tell."""

    def __init__(self, *, tells_groups: bool) -> None:
        super().__init__("127.0.0.1:1")
        self.tells_groups = tells_groups

    async def examine_broker_cluster_info(self) -> ClusterInfo:
        return CLUSTERS

    async def name_server_addresses(self) -> tuple[str, ...]:
        return ("n:1",)

    async def fetch_broker_runtime_stats(self, _address: str) -> dict[str, str]:
        return {}

    async def get_broker_config(self, _address: str) -> dict[str, str]:
        return {}

    async def get_broker_ha_status(self, _address: str) -> HARuntimeInfo:
        return HARuntimeInfo()

    async def get_all_topic_config(self, _address: str) -> dict[str, TopicConfig]:
        return {}

    async def get_user_subscription_group(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        if self.tells_groups:
            return {name: SubscriptionGroupConfig(name) for name in ("a", "a_T")}
        raise RemotingTimeoutError(f"no answer from {address}")

    async def examine_consumers(self, _group: str, _address: str | None = None) -> tuple[ConsumerConnection, str]:
        return ConsumerConnection(), ""

    async def examine_consume_stats(
        self,
        group: str,
        topic: str | None = None,
        route_topic: str | None = None,
        *,
        addresses: Sequence[str] | None = None,
        failures: dict[str, RocketBrokerError] | None = None,
    ) -> ConsumeStats:
        _ = group, topic, route_topic, addresses, failures
        return ConsumeStats()


@pytest.fixture(autouse=True)
def name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async def facts_of(address: str, _config: ClientConfig) -> NameServerFacts:
        return NameServerFacts(address, CLUSTERS, TOPICS)

    monkeypatch.setattr(cluster_facts, "_name_server", facts_of)


async def test_a_retry_topic_of_pop_is_no_group():
    facts = await collect(Admin(tells_groups=True), None, None)
    assert [each.name for each in facts.groups] == ["a", "a_T"]

    with pytest.raises(typer.BadParameter, match="no broker knows the consumer group 'a_U'"):
        await collect(Admin(tells_groups=True), "a_U", None)


@pytest.mark.parametrize("group", [None, "a_U"])
async def test_a_broker_that_does_not_tell_its_groups_may_have_any(group: str | None):
    facts = await collect(Admin(tells_groups=False), group, None)

    assert [each.name for each in facts.groups] == (["a", "a_T", "a_U"] if group is None else ["a_U"])
    assert "broker a:1, groups: no answer from a:1" in facts.unknown
