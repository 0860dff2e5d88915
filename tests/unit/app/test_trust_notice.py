"""What a server says of those who may use it."""

import pytest

from rocketbroker.app.trust_notice import trust_notice


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_nothing_is_said_where_only_this_machine_gets_in(host: str) -> None:
    assert trust_notice("broker", host, 10911) is None


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "0.0.0.0"), ("", "0.0.0.0"), ("192.0.2.1", "192.0.2.1")])
def test_it_is_said_who_is_trusted(host: str, shown: str) -> None:
    said = trust_notice("broker", host, 10911)
    assert said is not None
    assert said.startswith(f"broker: access control is off, so anyone who can reach {shown}:10911 is trusted")
    assert "\n" not in said


def test_a_host_name_is_taken_for_reachable() -> None:
    assert trust_notice("broker", "broker.example.org", 1) is not None
