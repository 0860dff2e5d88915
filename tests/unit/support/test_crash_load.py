"""The counts that a run with kills prints are counted."""

from tests.support.commit_log_follower import Place
from tests.support.crash_load import QUEUES, TOPIC, Attempt, order_breaks

IN_ORDER = {Attempt(0, n * QUEUES, 1): Place(TOPIC, 0, n) for n in range(3)}


def test_numbers_in_order_break_nothing():
    assert order_breaks(IN_ORDER) == []


def test_a_number_before_a_smaller_one_is_counted():
    swapped = IN_ORDER | {Attempt(0, 4, 1): Place(TOPIC, 0, 2), Attempt(0, 8, 1): Place(TOPIC, 0, 1)}

    assert len(order_breaks(swapped)) == 2


def test_a_number_in_another_queue_is_counted():
    assert order_breaks({Attempt(0, 1, 1): Place(TOPIC, 0, 0)})[0] == f"{Attempt(0, 1, 1)} is at {Place(TOPIC, 0, 0)}"
