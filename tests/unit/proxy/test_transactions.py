"""Open transactions: how many are kept."""

import pytest

pytest.importorskip("google.protobuf", reason="the extra grpc is not installed")

from rocketbroker.proxy import transactions
from rocketbroker.proxy.transactions import HalfMessage, OpenTransactions


def test_the_oldest_is_forgotten_beyond_a_number(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transactions, "_MOST_OPEN", 2)
    found = OpenTransactions()
    for number, transaction_id in enumerate("abac"):
        found.add("T", transaction_id, HalfMessage("broker-a", number, number))

    # The copy of "a" is younger than "b".
    assert list(found._halves.items()) == [
        (("T", "a"), HalfMessage("broker-a", 2, 2)),
        (("T", "c"), HalfMessage("broker-a", 3, 3)),
    ]
