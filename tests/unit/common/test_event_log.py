"""Logs that a stranger cannot fill."""

import logging
from types import SimpleNamespace

import pytest

from rocketbroker.common import event_log
from rocketbroker.common.event_log import EventLog, RefusalLog


def test_events_beyond_a_number_are_counted(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    caplog.set_level("INFO")
    now = 100.0
    monkeypatch.setattr(event_log, "time", SimpleNamespace(monotonic=lambda: now))
    events = EventLog(logging.getLogger("events"))
    for number in range(25):
        events.add("event %d", number)
    now += 9.9
    events.add("event 25")
    now += 0.1
    events.add("event 26")
    events.add("event 27")

    assert caplog.messages[:20] == [f"event {number}" for number in range(20)]
    assert caplog.messages[20:] == ["event 26; lines left out before this one: 6", "event 27"]


def test_refusals_are_counted_under_their_name(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr(event_log, "time", SimpleNamespace(monotonic=lambda: now))
    refusals = RefusalLog(logging.getLogger("refusals"), "not renewed")
    for _ in range(3):
        refusals.add("100% full")
    now += 10
    refusals.add("100% full")

    assert caplog.messages == [f"100% full; not renewed since the last such line: {number}" for number in (1, 3)]


def test_each_kind_of_refusal_has_a_line_up_to_a_bound(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    now = 100.0
    monkeypatch.setattr(event_log, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(event_log, "_MOST_EVENTS", 2)
    refusals = RefusalLog(logging.getLogger("refusals"))
    for kind in ("a", "a", "b", "b", "c"):
        refusals.add(kind, kind)
    now += 10
    refusals.add("c", "c")

    numbers = [("a", 1), ("b", 2), ("c", 3)]
    assert caplog.messages == [f"{kind}; rejected since the last such line: {number}" for kind, number in numbers]
