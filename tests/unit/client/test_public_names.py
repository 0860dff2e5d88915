"""Names of ``rocketbroker.client``."""

import sys

import pytest

from rocketbroker import client

OPTIONAL = ["OpenTelemetryHook", "with_trace_context"]


@pytest.mark.parametrize("name", [*client.__all__, *OPTIONAL])
def test_each_name_is_there(name: str):
    assert getattr(client, name).__name__ == name


def test_names_are_listed():
    assert {*client.__all__, *OPTIONAL} <= set(dir(client))
    assert not {*client.__all__} & {*OPTIONAL}


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "rocketbroker.client.trace.opentelemetry_hook", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'rocketbroker\[opentelemetry\]'"):
        _ = client.OpenTelemetryHook


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = client.Nothing
