from unittest.mock import Mock

import pytest

from rocketbroker.broker.client.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.config import BrokerConfig
from tests.support.fakes import FakeClock

A, B = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


def test_one_client_holds_a_queue_at_a_time():
    locks = RebalanceLockManager(FakeClock())
    assert locks.try_lock_batch("g", [A, B], "one") == [A, B]
    assert locks.try_lock_batch("g", [A, B], "two") == []
    assert locks.try_lock_batch("other", [A], "two") == [A]
    locks.unlock_batch("g", [A, B], "two")
    assert locks.try_lock_batch("g", [A], "two") == []
    locks.unlock_batch("g", [A], "one")
    assert locks.try_lock_batch("g", [A, B], "two") == [A]
    locks.unlock_batch("nobody", [A], "one")


@pytest.mark.proves("Order", "LOCK_BATCH_MQ, UNLOCK_BATCH_MQ; a lock that is not renewed ends after 60 s")
def test_lock_that_is_not_renewed_ends_after_a_minute():
    clock = FakeClock()
    locks = RebalanceLockManager(clock)
    locks.try_lock_batch("g", [A, B], "one")
    clock.advance(59)
    assert locks.try_lock_batch("g", [A], "one") == [A]
    clock.advance(2)
    assert locks.try_lock_batch("g", [A, B], "two") == [B]
    assert not locks.is_lock_all_expired("g")
    clock.advance(61)
    assert locks.is_lock_all_expired("g")
    assert locks.is_lock_all_expired("unknown")


def test_groups_without_locks_are_forgotten():
    clock = FakeClock()
    locks = RebalanceLockManager(clock)
    for number in range(100):
        locks.try_lock_batch(f"g{number}", [A], "one")
    clock.advance(61)
    locks.try_lock_batch("new", [A], "one")
    assert locks.groups == ["new"]


def test_expired_queues_are_forgotten_and_renewed_ones_stay():
    clock = FakeClock()
    locks = RebalanceLockManager(clock)
    locks.try_lock_batch("g", [MessageQueue("T", "b", queue_id) for queue_id in range(1_000)], "one")
    clock.advance(31)
    locks.try_lock_batch("g", [A], "one")
    clock.advance(31)
    assert locks.try_lock_batch("g", [B], "two") == [B]
    assert locks.queues("g") == [A, B]
    assert locks.try_lock_batch("g", [A], "two") == []


def test_a_lock_looks_at_no_other_that_holds(monkeypatch):
    clock = FakeClock()
    locks = RebalanceLockManager(clock)
    for group in range(100):
        locks.try_lock_batch(f"g{group}", [MessageQueue("T", "b", queue_id) for queue_id in range(100)], "one")
    is_expired = Mock(side_effect=RebalanceLockManager._is_expired)
    monkeypatch.setattr(RebalanceLockManager, "_is_expired", staticmethod(is_expired))
    locks.try_lock_batch("new", [A], "one")
    locks.try_lock_batch("g7", [A], "one")
    assert not locks.is_lock_all_expired("g7")
    assert is_expired.call_count < 10


def test_a_group_whose_queues_are_all_held_by_others_is_not_kept():
    locks = RebalanceLockManager(FakeClock())
    assert locks.try_lock_batch("g", [], "one") == []
    assert locks.groups == []


def test_a_scan_forgets_groups_whose_locks_have_expired():
    clock = FakeClock()
    locks = RebalanceLockManager(clock)
    locks.try_lock_batch("gone", [A, B], "one", b"1")
    locks.try_lock_batch("lives", [A, B], "one", b"1")
    clock.advance(31)
    locks.try_lock_batch("lives", [B], "one", b"1")
    clock.advance(31)
    locks.forget_expired()
    assert locks.groups == ["lives"]
    locks.try_lock_batch("lives", [B], "one", b"1")
    assert locks.queues("lives") == [B]
    assert (locks.count, locks._shares._taken) == (1, {b"1": 1})
    locks.unlock_batch("lives", [A, B], "one")
    assert (locks.count, locks._shares._taken, locks.groups) == (0, {}, [])


def test_a_scan_before_the_last_locks_of_a_group_expire_keeps_no_empty_group():
    clock = FakeClock()
    locks = RebalanceLockManager(clock)
    locks.try_lock_batch("released", [A], "one")
    clock.advance(45)
    locks.try_lock_batch("before", [A], "one")
    clock.advance(5)
    locks.try_lock_batch("released", [B], "one")
    locks.unlock_batch("released", [B], "one")
    for _ in range(3):
        clock.advance(30)
        locks.forget_expired()
        assert locks.try_lock_batch("new", [A], "one") == [A]


def test_one_call_forgets_a_bounded_number_of_locks_in_one_line(caplog):
    caplog.set_level("INFO")
    clock = FakeClock()
    locks = RebalanceLockManager(clock)
    for number in range(25_000):
        locks.try_lock_batch(f"g{number}", [A], "one")
    clock.advance(61)
    left: list[int] = []
    while not left or left[-1]:
        locks.forget_expired()
        left.append(locks.count)
    assert left == [15_000, 5_000, 0]
    assert len(caplog.records) == 3
    assert "10000 locks of group g0 and 9,999 others" in caplog.text


def test_locks_are_bounded_and_no_address_takes_those_of_the_next(caplog):
    config = BrokerConfig(max_queue_locks=1_000)
    locks = RebalanceLockManager(FakeClock(), config)
    queues = [MessageQueue("T", "b", queue_id) for queue_id in range(2_000)]
    counts = [len(locks.try_lock_batch(f"g{each}", queues, "one", bytes([each]))) for each in range(4)]
    assert counts == [500, 250, 125, 63]
    assert "maxQueueLocks: 500 queues are locked, and the limit for all addresses is 1000" in caplog.text
    # Those that are held can be renewed, and trusted peers may take the rest.
    assert locks.try_lock_batch("g0", queues[:10], "one", bytes([0])) == queues[:10]
    assert len(locks.try_lock_batch("trusted", queues, "one")) == 1_000 - sum(counts)
    locks.unlock_batch("g0", queues, "one")
    assert len(locks.try_lock_batch("late", queues, "one", b"late")) == 250


def test_a_lock_keeps_a_digest_of_a_long_id():
    locks = RebalanceLockManager(FakeClock())
    assert locks.try_lock_batch("g", [A], "x" * 1_000) == [A]
    assert max(len(each.client_id) for each in locks._table["g"].values()) <= 128
    assert locks.try_lock_batch("g", [A, B], "x" * 1_001) == [B]
    assert locks.try_lock_batch("g", [A], "x" * 1_000) == [A]
    locks.unlock_batch("g", [A], "x" * 1_000)
    assert locks.queues("g") == [B]
