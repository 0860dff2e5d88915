"""Refusals: what each counts as, where it is noted, and for how long its answer waits."""

from typing import Any

import pytest

from rocketbroker.auth.errors import AuthenticationError, AuthorizationError
from rocketbroker.auth.refusals import Refusals
from tests.support.fakes import FakeClock


class Audit:
    """An audit log that keeps its lines in memory."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def refused(self, source: object, request: object, reason: str) -> None:
        self.lines.append((source, request, reason))


def test_a_missing_right_counts_as_denied_and_never_waits(caplog: pytest.LogCaptureFixture):
    refusals = Refusals(FakeClock())
    assert [refusals.add(AuthorizationError("no right", "joe"), 10, "10.0.0.1:5") for _ in range(20)] == [0.0] * 20
    assert (refusals.denied, refusals.failed_attempts.failures) == (20, 0)
    assert "SEND_MESSAGE (10) from 10.0.0.1:5: no right" in caplog.text


def test_each_different_refusal_has_one_line_however_often_it_comes(caplog: pytest.LogCaptureFixture):
    refusals = Refusals(FakeClock())
    for port in range(3):
        refusals.add(AuthorizationError("no Pub", "joe"), 10, f"10.0.0.1:{port}")
        refusals.add(AuthorizationError("no Sub", "joe"), 77777, f"10.0.0.1:{port}")
        refusals.add(AuthorizationError("no Pub", "joe"), 10, f"10.0.0.2:{port}")
    assert [line.partition(";")[0] for line in caplog.messages] == [
        "SEND_MESSAGE (10) from 10.0.0.1:0: no Pub",
        "request code 77777 from 10.0.0.1:0: no Sub",
        "SEND_MESSAGE (10) from 10.0.0.2:0: no Pub",
    ]


def test_failed_credentials_wait_the_longer_the_more_often_the_address_has_failed():
    refusals = Refusals(FakeClock())
    waits = [refusals.add(AuthenticationError("who?"), "SendMessage", "10.0.0.1:5") for _ in range(20)]
    assert waits[0] == 0.0 < waits[10] < waits[-1]
    assert refusals.add(AuthenticationError("who?"), "SendMessage", "10.0.0.2:5") == 0.0
    assert (refusals.denied, refusals.failed_attempts.failures) == (0, 21)


def test_credentials_that_were_right_when_the_request_came_are_no_failed_attempt():
    refusals = Refusals(FakeClock())
    error = AuthenticationError("User:joe is disabled", "joe")
    waits = [refusals.add(error, "Telemetry", "10.0.0.1:5", is_attempt=False) for _ in range(20)]
    assert (set(waits), refusals.denied, refusals.failed_attempts.failures) == ({0.0}, 20, 0)


def test_a_slave_without_a_proof_is_denied_and_one_with_a_wrong_proof_has_failed():
    refusals = Refusals(FakeClock())
    refusals.add_slave("no proof", "10.0.0.1:5", is_attempt=False)
    assert (refusals.denied, refusals.failed_attempts.failures) == (1, 0)
    refusals.add_slave("wrong proof", "10.0.0.1:5", is_attempt=True)
    assert (refusals.denied, refusals.failed_attempts.failures) == (1, 1)


def test_each_kind_is_in_the_audit_log():
    refusals = Refusals(FakeClock())
    refusals.audit = audit = Audit()  # type: ignore[assignment]
    refusals.add(AuthorizationError("no right", "joe"), 10, "10.0.0.1:5")
    refusals.add(AuthenticationError("who?"), "SendMessage", "10.0.0.2:5")
    refusals.add(AuthenticationError("disabled", "joe"), "Telemetry", "10.0.0.1:5", is_attempt=False)
    refusals.add_slave("no proof", "10.0.0.3:5", is_attempt=False)
    assert audit.lines == [
        (("joe", "10.0.0.1:5"), 10, "no right"),
        ((None, "10.0.0.2:5"), "SendMessage", "who?"),
        (("joe", "10.0.0.1:5"), "Telemetry", "disabled"),
        ((None, "10.0.0.3:5"), "HA handshake", "no proof"),
    ]
