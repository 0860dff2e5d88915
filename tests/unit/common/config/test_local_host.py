"""What the machine calls itself."""

import ipaddress
import socket

import pytest

from rocketbroker.common.config import BrokerConfig, local_host


def test_the_local_address_is_an_address_one_can_bind():
    address = local_host.local_address()
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind((address, 0))


def test_a_machine_without_a_way_outside_is_loopback(monkeypatch):
    class Unreachable(socket.socket):
        def connect(self, _address):
            raise OSError(101, "Network is unreachable")

    monkeypatch.setattr("rocketbroker.common.config.local_host.socket.socket", Unreachable)
    assert local_host.local_address() == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "name"), [("", "DEFAULT_BROKER"), ("..", "DEFAULT_BROKER"), ("my höst.example", "my-h-st.example")]
)
def test_the_machines_name_is_one_that_a_broker_can_have(monkeypatch, host, name):
    monkeypatch.setattr("rocketbroker.common.config.local_host.socket.gethostname", lambda: host)
    assert local_host.local_name() == name
    assert BrokerConfig(broker_name=local_host.local_name()) == BrokerConfig()
