import pytest

from rocketbroker.broker.longpolling.pull_request import ManyPullRequest, PullRequest
from rocketbroker.codec.remoting.handler import HELD
from tests.support.fakes import FakeConnection


def pull(*codes: int, offset: int = 0, filters: bool = False) -> PullRequest:
    return PullRequest(
        FakeConnection(),
        None,
        "T",
        0,
        offset,
        frozenset(codes) or None,
        (lambda: True) if filters else None,
        run=lambda _connection, _command, _request: HELD,
    )


@pytest.fixture
def queue() -> ManyPullRequest:
    return ManyPullRequest("T", 0)


@pytest.mark.parametrize("others", [0, 3, 4, 100])
def test_a_message_takes_the_pulls_that_want_it(queue: ManyPullRequest, others: int):
    for number in range(others):
        queue.add(pull(100 + number))
    everything, seven, both = pull(), pull(7), pull(7, 8)
    for each in (everything, seven, both):
        queue.add(each)

    assert set(queue.take(8, 1)) == {everything, both}
    assert set(queue.take(9, 1)) == set()
    assert seven in queue.take(7, 1)
    assert queue.count == others + 3, "what is taken stays until it is removed"
    for each in (everything, seven, both):
        queue.remove(each)
    assert queue.count == others
    assert list(queue.take(7, 1)) == []


def test_nothing_is_left_of_pulls_that_are_removed(queue: ManyPullRequest):
    pulls = [pull(*range(number, number + 3)) for number in range(20)] + [pull(), pull(filters=True)]
    for each in pulls:
        queue.add(each)
    for each in pulls:
        queue.remove(each)

    left = (queue.count, queue.filtered, queue._everything, queue._few, queue._by_code)
    assert not any(left)


def test_a_pull_for_a_later_message_stays(queue: ManyPullRequest):
    pulls = [pull(*codes, offset=offset) for codes in ((), (7,)) for offset in (5, 6)]
    pulls += [pull(7, offset=offset) for offset in (5, 6) * 5]
    for each in pulls:
        queue.add(each)

    assert set(queue.take(7, 6)) == {each for each in pulls if each.offset == 5}
    assert set(queue.take(7, 7)) == {each for each in pulls if each.offset == 6}


def test_pulls_that_filter_are_taken_by_no_message(queue: ManyPullRequest):
    queue.add(filtering := pull(filters=True))
    assert list(queue.take(7, 1)) == []
    assert queue.filtered == {filtering}
