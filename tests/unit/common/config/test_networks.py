import ipaddress

import pytest

from rocketbroker.common.config.networks import contains, parse_address, parse_networks


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
