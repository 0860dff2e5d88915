"""Delays of answers to wrong credentials."""

import pytest

from rocketbroker.auth.failed_attempts import MAX_DELAY_S, FailedAttempts
from rocketbroker.common import address_debts
from tests.support.fakes import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def attempts(clock: FakeClock) -> FailedAttempts:
    return FailedAttempts(clock)


def test_a_few_failures_are_answered_at_once_and_more_ever_later(attempts: FailedAttempts):
    delays = [attempts.failed("10.0.0.1") for _ in range(20)]
    assert delays[:5] == [0.0] * 5
    assert delays[5:9] == pytest.approx([0.05, 0.1, 0.2, 0.4])
    assert delays == sorted(delays)
    assert max(delays) == delays[-1] == MAX_DELAY_S
    assert (attempts.failures, attempts.delayed) == (20, 15)


def test_time_takes_the_debt_away(attempts: FailedAttempts, clock: FakeClock):
    for _ in range(10):
        attempts.failed("10.0.0.1")
    clock.advance(6)
    assert attempts.failed("10.0.0.1") == 0.0
    clock.advance(3_600)
    assert [attempts.failed("10.0.0.1") for _ in range(6)] == pytest.approx([0.0] * 5 + [0.05])


def test_a_long_attack_is_forgotten_within_a_minute(attempts: FailedAttempts, clock: FakeClock):
    for _ in range(100_000):
        attempts.failed("10.0.0.1")
    clock.advance(60)
    assert attempts.failed("10.0.0.1") == 0.0


def test_addresses_are_counted_apart(attempts: FailedAttempts):
    for _ in range(10):
        attempts.failed("10.0.0.1")
    assert attempts.failed("10.0.0.2") == 0.0
    assert attempts.failed("::ffff:10.0.0.1") > 0


def test_a_network_of_ipv6_counts_as_one_address(attempts: FailedAttempts):
    delays = [attempts.failed(f"2001:db8::{number:x}") for number in range(10)]
    assert delays[-1] > 0
    assert attempts.failed("2001:db8:0:1::1") == 0.0
    assert len(attempts) == 2


def test_a_peer_without_an_address_is_slowed_down_too(attempts: FailedAttempts):
    assert [attempts.failed("") for _ in range(6)][-1] > 0


def test_memory_is_bounded_and_the_latest_are_kept(attempts: FailedAttempts, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(address_debts, "MAX_ADDRESSES", 100)
    for _ in range(10):
        attempts.failed("10.0.0.1")
    for number in range(1_000):
        attempts.failed(f"10.1.{number // 250}.{number % 250}")
        attempts.failed("10.0.0.1")
    assert len(attempts) == 100
    assert attempts.failed("10.0.0.1") == MAX_DELAY_S
    assert attempts.failed("10.1.0.0") == 0.0
