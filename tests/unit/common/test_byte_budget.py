from rocketbroker.common.byte_budget import ByteBudget
from tests.support.fakes import FakeClock


def test_the_bucket_keeps_ten_seconds_of_its_rate():
    clock = FakeClock()
    budget = ByteBudget(clock)
    assert budget.take(900, 100)
    assert budget.take(900, 100), "the last may be more than what is left"
    assert not budget.take(1, 100)
    clock.advance(8)
    assert not budget.take(1, 100)
    clock.advance(0.01)
    assert budget.take(1, 100)
    assert not budget.take(1, 100)
    clock.advance(3600)
    assert [budget.take(500, 100) for _ in range(3)] == [True, True, False]


def test_a_rate_that_changes_counts_from_then_on():
    clock = FakeClock()
    budget = ByteBudget(clock)
    assert budget.take(1_000, 100)
    assert not budget.take(1, 100)
    assert budget.take(1, 200)
