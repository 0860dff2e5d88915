"""Tests of the addresses of hosts."""

import socket

import pytest

from rocketbroker.app.host_address import host_address
from rocketbroker.common.errors import ConfigError


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
