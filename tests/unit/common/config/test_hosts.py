"""Names and addresses of this machine."""

import ipaddress
import socket

import pytest

from rocketbroker.common.config import BrokerConfig, hosts
from rocketbroker.common.config.hosts import contains, host_address, parse_address, parse_networks
from rocketbroker.common.errors import ConfigError


def test_the_local_address_is_an_address_one_can_bind():
    address = hosts.local_address()
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind((address, 0))


def test_a_machine_without_a_way_outside_is_loopback(monkeypatch):
    class Unreachable(socket.socket):
        def connect(self, _address):
            raise OSError(101, "Network is unreachable")

    monkeypatch.setattr("rocketbroker.common.config.hosts.socket.socket", Unreachable)
    assert hosts.local_address() == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "name"), [("", "DEFAULT_BROKER"), ("..", "DEFAULT_BROKER"), ("my höst.example", "my-h-st.example")]
)
def test_the_machines_name_is_one_that_a_broker_can_have(monkeypatch, host, name):
    monkeypatch.setattr("rocketbroker.common.config.hosts.socket.gethostname", lambda: host)
    assert hosts.local_name() == name
    assert BrokerConfig(broker_name=hosts.local_name()) == BrokerConfig()


@pytest.mark.parametrize("address", ["192.0.2.7", "::1"])
def test_an_address_stays_as_it_is(address: str):
    assert host_address(address) == address


def test_a_name_is_looked_up_with_ipv4_first(monkeypatch: pytest.MonkeyPatch):
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::7", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 0)),
    ]
    answers = {"broker.example": found}
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: answers[host])

    assert host_address("broker.example") == "192.0.2.7"


@pytest.mark.parametrize("error", [socket.gaierror(-2, "Name or service not known"), UnicodeError("label too long")])
def test_an_unknown_name_is_rejected(error: Exception, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)

    with pytest.raises(ConfigError, match=r"'broker\.example' is neither an IP address nor a known host: "):
        host_address("broker.example")


def test_a_list_holds_addresses_and_networks_of_both_kinds():
    networks = parse_networks(" 10.0.0.0/8; 192.0.2.7,2001:db8::/32 ;; ")

    assert [str(network) for network in networks] == ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"]
    assert parse_networks("") == ()


@pytest.mark.parametrize(
    "text", ["10.0.0.7/8", "10.0.0", "localhost", "10.0.0.0/33", "10.0.0.*", "::ffff:10.0.0.1", "10.0.0.1:80", "all"]
)
def test_an_invalid_network_or_one_that_matches_no_peer_is_rejected(text: str):
    with pytest.raises(ValueError):  # noqa: PT011 - its text is not shown
        parse_networks(f"192.0.2.7;{text}")


def test_addresses_are_compared_without_zone_and_as_ipv4_where_they_are():
    assert parse_address("::ffff:192.0.2.7") == ipaddress.ip_address("192.0.2.7")
    assert parse_address("fe80::1%eth0") == ipaddress.ip_address("fe80::1")
    assert parse_address("?") is None


def test_a_network_of_one_kind_never_has_an_address_of_the_other():
    old, new = ipaddress.ip_address("192.0.2.7"), ipaddress.ip_address("2001:db8::1")

    assert [contains(parse_networks("0.0.0.0/0"), address) for address in (old, new)] == [True, False]
    assert [contains(parse_networks("::/0"), address) for address in (old, new)] == [False, True]
