"""Conditions of a broker's health."""

from types import SimpleNamespace
from typing import Any

import pytest

from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.metrics.health import BrokerHealth
from rocketbroker.store.commitlog.put_message import Refusal, StandingRefusals


class Broker:
    """The parts of a broker that its health depends on."""

    def __init__(self, namesrv: str = "", role: Any = "ASYNC_MASTER", replicas: int = 1, **settings: Any) -> None:
        self.refusals = StandingRefusals()
        self.registered: list[str] = []
        self.client = SimpleNamespace(problem="")
        self.serving = True
        servers: Any = SimpleNamespace(
            name_servers=lambda: [each for each in namesrv.split(";") if each], registered_at=lambda: self.registered
        )
        self.service = SimpleNamespace(in_sync_slaves=0)
        service: Any = self.service
        client: Any = self.client
        self.health = BrokerHealth(
            BrokerConfig(namesrv_addr=namesrv),
            MessageStoreConfig(broker_role=role, in_sync_replicas=replicas, **settings),
            self.refusals,
            servers,
            service,
            client,
            lambda: self.serving,
        )

    def missing(self) -> dict[str, str]:
        return {each.name: each.reason for each in self.health.ready() if not each.ok}


def test_a_broker_without_demands_is_ready():
    broker = Broker()

    assert broker.missing() == {}
    assert [each.name for each in broker.health.ready()] == ["store", "disk", "registered", "replica"]
    assert all(each.ok for each in broker.health.alive())


@pytest.mark.parametrize("refusal", [Refusal.NOT_STARTED, Refusal.READ_ONLY, Refusal.NOT_DISPATCHED])
def test_a_store_that_rejects_messages_says_why(refusal: Refusal):
    broker = Broker()
    broker.refusals.set(refusal, "the reason")

    assert broker.missing() == {"store": "the reason"}


def test_a_full_disk_is_a_condition_of_its_own():
    broker = Broker()
    broker.refusals.set(Refusal.DISK_FULL, "the disk is 96 % full")

    assert broker.missing() == {"disk": "the disk is 96 % full"}


def test_the_slave_role_is_no_reason():
    broker = Broker(role="SLAVE")
    broker.refusals.set(Refusal.SLAVE, "messages go to the master")

    assert broker.missing() == {}


def test_a_broker_that_starts_or_stops_is_not_ready():
    broker = Broker()
    broker.serving = False

    assert broker.missing() == {"store": "the broker is starting or stopping"}


def test_one_name_server_is_enough():
    broker = Broker("192.0.2.1:9876;192.0.2.2:9876")
    assert "192.0.2.1:9876, 192.0.2.2:9876" in broker.missing()["registered"]
    broker.registered.append("192.0.2.2:9876")

    assert broker.missing() == {}


def test_a_sync_master_needs_its_slaves():
    broker = Broker(role="SYNC_MASTER", replicas=2)
    assert broker.missing() == {"replica": "slaves in sync: 0; messages wait for 1 (inSyncReplicas)"}
    broker.service.in_sync_slaves = 1

    assert broker.missing() == {}


def test_a_sync_master_needs_fewer_slaves_where_their_number_adapts():
    settings: dict[str, Any] = {"enable_auto_in_sync_replicas": True}
    assert Broker(role="SYNC_MASTER", replicas=3, **settings).missing() == {}
    for replicas in (1, 3):
        broker = Broker(role="SYNC_MASTER", replicas=replicas, min_in_sync_replicas=2, **settings)
        reason = "slaves in sync: 0; messages wait for 1 (minInSyncReplicas)"
        assert broker.missing() == {"replica": reason}


def test_a_slave_needs_its_master():
    broker = Broker(role="SLAVE")
    broker.client.problem = "the logs differ"

    assert broker.missing() == {"replica": "the logs differ"}
