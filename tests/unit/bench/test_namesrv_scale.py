"""A name server with many brokers, here with few."""

import sys

import pytest

from bench.harness import BenchError
from bench.namesrv_scale import Layout, _accepted, figures
from tests.support.raw_client import RawAnswer


def test_each_topic_is_on_as_many_brokers_as_asked_for() -> None:
    layout = Layout(brokers=20, topics=12, spread=5, wide=2)
    tables = [layout.topics_of(broker) for broker in range(layout.brokers)]
    counts = [sum(topic in table for table in tables) for topic in range(layout.topics)]

    assert counts[:2] == [20, 20]
    # The first broker has all topics.
    assert set(counts[2:]) <= {5, 6}
    assert tables[0] == list(range(12))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_each_phase_has_its_figures() -> None:
    found = [name for name, _ in figures(Layout(brokers=4, topics=6, spread=2, wide=1), 1, 0.05) if name]

    assert found[0] == "brokers, topics, topics of all brokers"
    assert found[-2:] == ["a changed topic is in its route after", "memory at the end"]
    assert len(set(found)) == 14


def test_a_rejected_registration_ends_the_run() -> None:
    with pytest.raises(BenchError, match="answered 1: maxBrokers"):
        _accepted(RawAnswer({"code": 1, "remark": "maxBrokers: too many"}, b""))
    with pytest.raises(BenchError, match="closed a connection"):
        _accepted(None)
