"""Debts of addresses: their growth, their end, and the bound of the table."""

import pytest

from rocketbroker.common import address_debts
from rocketbroker.common.address_debts import AddressDebts


def test_a_debt_grows_to_its_bound_and_leaks():
    debts = AddressDebts(leak=2.0, most=5.0)
    assert [debts.add("a", 100.0) for _ in range(7)] == [1, 2, 3, 4, 5, 5, 5]
    assert [debts.of("a", 100.0 + s) for s in (0, 1, 2, 3, 100)] == [5, 3, 1, 0, 0]
    assert debts.add("a", 101.0) == 4
    assert debts.of("b", 100.0) == 0


def test_the_addresses_that_failed_last_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(address_debts, "MAX_ADDRESSES", 10)
    debts = AddressDebts(leak=1.0, most=50.0)
    for number in range(100):
        debts.add("attacker", 100.0)
        debts.add(number, 100.0)
    assert len(debts) == 10
    assert debts.of("attacker", 100.0) == 50
    assert debts.of(0, 100.0) == 0
