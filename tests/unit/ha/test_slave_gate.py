"""A connection to the HA port proves nothing: who may connect, and who counts."""

from typing import Any, NamedTuple

import pytest

from rocketbroker.common.config import TransportConfig
from rocketbroker.ha import slave_gate
from rocketbroker.ha.slave_gate import SlaveGate

OWN = "10.0.0.1"


class Slave(NamedTuple):
    peer_host: str
    own_host: str = OWN


def gate(*known: str, **settings: Any) -> SlaveGate[Slave]:
    return SlaveGate(TransportConfig(**settings), OWN, lambda: known, lambda: None)


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", OWN])
def test_this_machine_may_connect(peer: str):
    assert gate().rejects(peer, OWN) == ""


def test_others_may_connect_if_a_white_list_has_them():
    assert "not in brokerWhiteList" in gate().rejects("10.0.0.2", OWN)
    assert gate(broker_white_list="10.0.0.0/24").rejects("10.0.0.2", OWN) == ""
    assert gate(admin_white_list="10.0.0.2").rejects("10.0.0.2", OWN) == ""
    assert gate(protected_mode=False).rejects("10.0.0.2", OWN) == ""


def test_only_slaves_that_a_name_server_knows_count():
    known, stranger = Slave("10.0.0.2"), Slave("10.0.0.3")

    assert gate("10.0.0.2").counted([stranger, known]) == [known]
    assert gate().counted([stranger, known]) == []
    assert gate(protected_mode=False).counted([stranger, known]) == [known, stranger]


def test_as_many_connections_of_a_host_count_as_slaves_are_there_the_newest_first():
    old, new = Slave("10.0.0.2"), Slave("10.0.0.2", "10.0.0.1")

    assert gate("10.0.0.2").counted([old, new]) == [new]
    assert len(gate("10.0.0.2", "10.0.0.2").counted([old, new, old])) == 2


def test_one_slave_on_two_connections_counts_once_without_protected_mode():
    old, new, other = Slave("10.0.0.2"), Slave("10.0.0.2", "10.0.0.9"), Slave("10.0.0.3")

    assert gate(protected_mode=False).counted([old, new, other]) == [other, new]
    assert gate("10.0.0.2", "10.0.0.2", protected_mode=False).counted([old, new, other]) == [other, new, old]


def test_addresses_are_compared_when_connections_or_name_servers_change_only(monkeypatch: pytest.MonkeyPatch):
    compared, known = list[str](), list[str]()

    def compare(peer: str, _own: str) -> bool:
        compared.append(peer)
        return False

    monkeypatch.setattr(slave_gate, "is_this_machine", compare)
    found = SlaveGate[Slave](TransportConfig(), OWN, lambda: known, lambda: None)
    peers = [Slave("10.0.0.2")]

    assert found.counted(peers) == []
    del compared[:]
    assert found.counted(peers) == []
    assert compared == []
    known.append("10.0.0.2")
    assert found.counted(peers) == peers


@pytest.mark.parametrize("registered", [OWN, "127.0.0.1"])
@pytest.mark.parametrize("peer", [OWN, "127.0.0.1"])
def test_all_addresses_of_this_machine_are_one(registered: str, peer: str):
    slave = Slave(peer, peer)
    assert gate(registered).counted([slave]) == [slave]
