"""The limit of label sets, from one report to the next."""

from rocketbroker.common.histogram import Histogram
from rocketbroker.metrics.family import OVERFLOW, Overflow, Value, counter, histogram


def values(overflow: Overflow, limit: int, counts: dict[str, Value]) -> dict[str, Value]:
    """Return the value of each topic after the next report; that of the others is ``rest``."""
    samples = [({"topic": topic}, value) for topic, value in counts.items()]
    is_distribution = any(isinstance(value, Histogram) for value in counts.values())
    family = histogram("h", samples, "Help") if is_distribution else counter("c_total", samples)
    found = [step for step in overflow.limit(family, limit) if step is not None]
    return {"rest" if labels == OVERFLOW else labels["topic"]: value for labels, value in found}


def test_the_sum_beyond_the_limit_falls_with_no_deleted_topic():
    overflow = Overflow()
    assert values(overflow, 2, {"A": 1, "B": 5, "C": 7}) == {"A": 1, "rest": 12}

    assert values(overflow, 2, {"A": 1, "B": 6}) == {"A": 1, "rest": 13}


def test_a_topic_in_the_sum_stays_there_though_a_place_gets_free():
    overflow = Overflow()
    values(overflow, 2, {"A": 1, "B": 5})

    assert values(overflow, 2, {"B": 6}) == {"rest": 6}
    assert values(overflow, 2, {"B": 6, "new": 3}) == {"new": 3, "rest": 6}


def test_a_topic_that_began_again_is_added():
    overflow = Overflow()
    values(overflow, 2, {"A": 1, "B": 5})

    assert values(overflow, 2, {"A": 1, "B": 2}) == {"A": 1, "rest": 7}


def test_the_sum_of_distributions_only_grows():
    overflow, one, other = Overflow(), Histogram((1,)), Histogram((1,))
    one.add(0.5, 3)
    other.add(5, 2)
    values(overflow, 2, {"A": one, "B": one, "C": other})
    again = Histogram((1,))
    again.add(5, 4)

    rest = values(overflow, 2, {"A": one, "B": again})["rest"]
    assert isinstance(rest, Histogram)
    assert (rest.count, rest.buckets, rest.sum) == (9, [3, 6], 1.5 + 10 + 20)
