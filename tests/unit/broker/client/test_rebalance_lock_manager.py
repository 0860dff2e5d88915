from unittest.mock import Mock

from rocketbroker.broker.client.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
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
    assert list(locks._table) == ["new"]


def test_expired_queues_are_forgotten_and_renewed_ones_stay():
    clock = FakeClock()
    locks = RebalanceLockManager(clock)
    locks.try_lock_batch("g", [MessageQueue("T", "b", queue_id) for queue_id in range(1_000)], "one")
    clock.advance(31)
    locks.try_lock_batch("g", [A], "one")
    clock.advance(31)
    assert locks.try_lock_batch("g", [B], "two") == [B]
    assert list(locks._table["g"]) == [A, B]
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
    assert list(locks._table) == []
