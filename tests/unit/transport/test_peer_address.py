"""Addresses of peers."""

import pytest

from rocketbroker.transport.peer_address import host_bytes


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (("192.0.2.7", 10911), "c000020700002a9f"),
        (("::ffff:192.0.2.7", 10911, 0, 0), "c000020700002a9f"),
        (("2001:db8::1", 10911, 0, 0), "20010db800000000000000000000000100002a9f"),
        (("fe80::1%lo", 1, 0, 1), "fe80000000000000000000000000000100000001"),
    ],
)
def test_a_peer_as_records_hold_it(address, expected: str):
    assert host_bytes(address).hex() == expected
