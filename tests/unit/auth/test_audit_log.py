"""Lines of the audit log: one JSON object each, and a bound on those that strangers cause."""

import json
import logging
from typing import Any

import pytest

from rocketbroker.auth.audit_log import AUDIT_LOGGER, AuditLog, Source
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.fakes import FakeClock

ALICE = Source("alice", "192.0.2.7:50000")


@pytest.fixture
def audit(caplog: pytest.LogCaptureFixture) -> AuditLog:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    return AuditLog("broker-a_0", FakeClock())


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found = [json.loads(message) for message in caplog.messages]
    caplog.clear()
    return [{name: value for name, value in line.items() if name != "time"} for line in found]


def test_a_change_has_its_source_and_both_states(audit: AuditLog, caplog: pytest.LogCaptureFixture):
    audit.changed(ALICE, RequestCode.DELETE_TOPIC_IN_BROKER, {"fields": {"topic": "T"}, "before": 1, "after": None})

    assert lines(caplog) == [
        {
            "server": "broker-a_0",
            "event": "change",
            "user": "alice",
            "address": "192.0.2.7:50000",
            "request": "DELETE_TOPIC_IN_BROKER",
            "code": 215,
            "fields": {"topic": "T"},
            "before": 1,
        }
    ]


def test_a_name_can_neither_break_a_line_nor_steer_a_terminal(audit: AuditLog, caplog: pytest.LogCaptureFixture):
    audit.refused(Source("eve\n\x1b[2J\u202e", "h:1"), "ns/Method", 'no "right"\n{"event": "change"}')

    (text,) = caplog.messages
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text)["reason"] == 'no "right"\n{"event": "change"}'


def test_what_is_refused_again_is_counted(audit: AuditLog, caplog: pytest.LogCaptureFixture):
    for port in range(3):
        audit.refused(Source("eve", f"192.0.2.7:{port}"), 25, "no right")
    audit.refused(Source("eve", "192.0.2.8:1"), 25, "no right")
    assert [line["address"] for line in lines(caplog)] == ["192.0.2.7:0", "192.0.2.8:1"]

    audit.end_period()

    (again,) = lines(caplog)
    assert (again["address"], again["times"], again["request"]) == ("192.0.2.7", 2, "UPDATE_BROKER_CONFIG")
    audit.end_period()
    assert not lines(caplog)


def test_a_flood_of_different_names_has_a_hundred_lines_and_a_number(audit: AuditLog, caplog: pytest.LogCaptureFixture):
    for number in range(1_000):
        audit.refused(Source(f"user-{number}", f"192.0.2.{number % 10}:1"), 25, "x" * 100_000)

    assert len(lines(caplog)) == 100
    audit.end_period()
    others = lines(caplog)
    assert {line["address"]: line["times"] for line in others} == {f"192.0.2.{each}": 90 for each in range(10)}
    assert {line["reason"] for line in others} == {"other refusals in these 10 s"}


def test_names_made_up_at_one_address_do_not_hide_the_refusals_of_others(
    audit: AuditLog, caplog: pytest.LogCaptureFixture
):
    for number in range(1_000):
        audit.refused(Source(f"user-{number}", "192.0.2.7:1"), 25, "no right")
    audit.refused(Source("shop", "192.0.2.8:1"), 25, "no right")

    found = lines(caplog)
    assert len(found) == 21
    assert found[-1]["user"] == "shop"
    audit.end_period()
    (others,) = lines(caplog)
    assert (others["address"], others["times"]) == ("192.0.2.7", 980)


def test_addresses_beyond_the_bound_are_counted_together(audit: AuditLog, caplog: pytest.LogCaptureFixture):
    for number in range(1_000):
        audit.refused(Source("eve", f"2001:db8::{number}:1"), 25, "no right")

    assert len(lines(caplog)) == 100
    audit.end_period()
    others = lines(caplog)
    assert len(others) == 101
    assert sum(line["times"] for line in others) == 900
    assert [line["times"] for line in others if "address" not in line] == [800]


def test_a_reason_is_cut(audit: AuditLog, caplog: pytest.LogCaptureFixture):
    audit.refused(Source("u" * 10_000, "h:1"), 4_711, "x" * 100_000)

    (line,) = lines(caplog)
    assert len(line["reason"]) == 1_000
    assert len(line["user"]) < 200
    assert line["code"] == 4_711
    assert "request" not in line


async def test_the_last_counts_are_written_at_the_stop(audit: AuditLog, caplog: pytest.LogCaptureFixture):
    await audit.start()
    for _ in range(2):
        audit.refused(ALICE, 25, "no right")
    await audit.stop()

    assert [line.get("times") for line in lines(caplog)] == [None, 1]


async def test_without_log_files_nothing_is_kept(caplog: pytest.LogCaptureFixture):
    audit = AuditLog("broker-a_0", FakeClock())
    await audit.start()
    for _ in range(2):
        audit.refused(ALICE, 25, "no right")
    await audit.stop()

    assert not audit.is_on
    assert not caplog.messages
