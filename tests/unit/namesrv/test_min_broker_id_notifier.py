"""Notifications of a changed smallest broker id."""

import pytest

from rocketbroker.codec.remoting.bodies.route import BrokerData
from rocketbroker.codec.remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from rocketbroker.common.config import NamesrvConfig
from rocketbroker.namesrv.min_broker_id_notifier import MinBrokerIdNotifier

Told = list[tuple[str, NotifyMinBrokerIdChangeRequestHeader]]


def notifier(told: Told, enabled: str = "true") -> MinBrokerIdNotifier:
    config = NamesrvConfig.model_validate({"notifyMinBrokerIdChanged": enabled})
    return MinBrokerIdNotifier(config, lambda *said: told.append(said))


@pytest.fixture
def group() -> BrokerData:
    return BrokerData("C", "broker-a", {0: "h:0", 1: "h:1", 2: "h:2"}, enable_acting_master=True)


def test_the_others_hear_of_a_newcomer(group: BrokerData) -> None:
    told: Told = []
    notifier(told).smaller_id_came(group, "ha:0")
    header = NotifyMinBrokerIdChangeRequestHeader(0, None, "h:0", None, "ha:0")
    assert told == [("h:1", header), ("h:2", header)]


def test_all_hear_of_one_that_left(group: BrokerData) -> None:
    told: Told = []
    notifier(told).smallest_id_left(group, "h:gone")
    header = NotifyMinBrokerIdChangeRequestHeader(0, None, "h:0", "h:gone", None)
    assert told == [("h:0", header), ("h:1", header), ("h:2", header)]


def test_nobody_is_notified_if_no_slave_may_act_as_master(group: BrokerData) -> None:
    told: Told = []
    group.enable_acting_master = False
    notifier(told).smallest_id_left(group, "h:gone")
    assert told == []


def test_nobody_is_notified_if_it_is_off(group: BrokerData) -> None:
    told: Told = []
    notifier(told, "false").smaller_id_came(group, "ha:0")
    notifier(told, "false").smallest_id_left(group, "h:gone")
    assert told == []


def test_a_single_broker_hears_of_itself() -> None:
    told: Told = []
    notifier(told).smaller_id_came(BrokerData("C", "broker-a", {0: "h:0"}), "ha:0")
    assert [address for address, _ in told] == ["h:0"]
