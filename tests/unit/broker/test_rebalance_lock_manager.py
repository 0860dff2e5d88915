from rocketbroker.broker.rebalance_lock_manager import MANY_LOCKS, RebalanceLockManager
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


def test_made_up_queues_are_forgotten():
    clock = FakeClock()
    locks = RebalanceLockManager(clock)
    locks.try_lock_batch("g", [MessageQueue("T", "b", queue_id) for queue_id in range(MANY_LOCKS + 1)], "one")
    clock.advance(61)
    assert locks.try_lock_batch("g", [A], "two") == [A]
    assert len(locks._table["g"]) == 1
