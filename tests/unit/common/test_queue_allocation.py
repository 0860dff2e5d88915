import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.common.queue_allocation import allocate_averagely, allocate_averagely_by_circle, java_order

# The answers of the Java client to both are recorded: tests/unit/client/consumer/test_rebalance.py.


@pytest.mark.parametrize("allocate", [allocate_averagely, allocate_averagely_by_circle])
@given(st.integers(0, 50), st.integers(1, 10))
def test_each_queue_has_one_member_and_shares_differ_by_one(allocate, queues: int, members: int):
    names = [f"m{number}" for number in range(members)]
    shares = [allocate(name, range(queues), names) for name in names]

    assert sorted(queue for share in shares for queue in share) == list(range(queues))
    assert {len(share) for share in shares} <= {queues // members, -(-queues // members)}


def test_averagely_gives_neighbours_and_by_circle_every_nth():
    assert allocate_averagely("b", "12345", ["a", "b"]) == ["4", "5"]
    assert allocate_averagely_by_circle("b", "12345", ["a", "b"]) == ["2", "4"]


def test_texts_sort_by_utf_16_units():
    assert sorted(["\uffee", "\U0001f600", "z"], key=java_order) == ["z", "\U0001f600", "\uffee"]
