from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.analytics.spark.queue_ranges import limit_ends, offsets_of, partitions_of, progress_of
from rocketbroker.codec.message.message_ext import MessageQueue

QUEUES = [MessageQueue("T", "a", number) for number in range(6)]
BACKLOGS = st.lists(st.integers(0, 1000), min_size=1, max_size=6)


def test_progress_is_by_broker_topic_and_queue():
    offsets = {MessageQueue("T", "b", 1): 5, MessageQueue("T", "a", 0): 7, MessageQueue("S", "b", 0): 0}
    progress = progress_of(offsets)
    assert progress == {"a": {"T": {"0": 7}}, "b": {"S": {"0": 0}, "T": {"1": 5}}}
    assert offsets_of(progress) == offsets


@given(backlogs=BACKLOGS, at_least=st.integers(1, 40))
def test_parts_cover_each_range_and_are_as_many_as_asked_for(backlogs: list[int], at_least: int):
    ranges = [(queue, 10, 10 + size) for queue, size in zip(QUEUES, backlogs, strict=False)]
    parts = partitions_of(ranges, at_least)
    for queue, low, high in ranges:
        own = [(part.low, part.high) for part in parts if part.queue == queue]
        assert [number for begin, end in own for number in range(begin, end)] == list(range(low, high))
        assert all(begin < end for begin, end in own)
    assert len(parts) >= min(at_least, sum(backlogs))


def test_queues_are_not_divided_without_need():
    ranges = [(QUEUES[0], 0, 1000), (QUEUES[1], 0, 1), (QUEUES[2], 5, 5)]
    assert [(part.queue, part.low, part.high) for part in partitions_of(ranges, 2)] == ranges[:2]
    assert len(partitions_of(ranges, 5)) == 6


@given(backlogs=BACKLOGS, most=st.integers(1, 2000))
def test_a_limit_is_shared_as_the_backlogs_are(backlogs: list[int], most: int):
    starts = dict.fromkeys(QUEUES[: len(backlogs)], 3)
    ends = {queue: 3 + size for queue, size in zip(starts, backlogs, strict=True)}
    found = limit_ends(starts, ends, most)
    shares = [found[queue] - 3 for queue in starts]
    total = sum(backlogs)
    for share, backlog in zip(shares, backlogs, strict=True):
        assert min(backlog, 1) <= share <= backlog
        assert total <= most or share <= max(backlog * most / total, 1)
    assert sum(shares) < most + len(backlogs)
    assert shares == backlogs or sum(shares) > most - len(backlogs)
