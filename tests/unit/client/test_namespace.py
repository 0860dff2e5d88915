"""Names with and without their namespace."""

import pytest

from rocketbroker.client.namespace import Namespace

NAMES = [
    ("Orders", "NS%Orders"),
    ("%RETRY%billing", "%RETRY%NS%billing"),
    ("%DLQ%billing", "%DLQ%NS%billing"),
    ("TBW102", "TBW102"),
    ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ("%RETRY%CID_RMQ_SYS_TRANS", "%RETRY%CID_RMQ_SYS_TRANS"),
    ("", ""),
]


@pytest.mark.parametrize(("name", "wrapped"), NAMES)
def test_a_name_is_wrapped_once(name: str, wrapped: str):
    namespace = Namespace("NS")
    assert namespace.wrap(name) == wrapped
    assert namespace.wrap(wrapped) == wrapped
    assert namespace.unwrap(wrapped) == name


def test_names_of_other_namespaces_stay():
    assert Namespace("NS").unwrap("Other%Orders") == "Other%Orders"


@pytest.mark.parametrize("name", ["Orders", "NS%Orders", "%RETRY%billing"])
def test_without_a_namespace_names_stay(name: str):
    assert Namespace("").wrap(name) == Namespace("").unwrap(name) == name
