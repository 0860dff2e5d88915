"""Slow and failed brokers are avoided for a while."""

import pytest

from rocketbroker.client.mq_fault_strategy import MQFaultStrategy
from rocketbroker.codec.message.message_ext import MessageQueue
from tests.support.fakes import FakeClock

QUEUES = [MessageQueue("T", broker, index) for broker in ("a", "b") for index in range(4)]


def chosen(strategy: MQFaultStrategy, last: str | None = None) -> set[str]:
    return {strategy.select(QUEUES, last).broker_name for _ in range(20)}


def test_without_it_only_the_message_that_failed_goes_elsewhere():
    strategy = MQFaultStrategy(FakeClock().monotonic)
    assert not strategy.send_latency_enable
    assert (chosen(strategy), chosen(strategy, "a")) == ({"a", "b"}, {"b"})


@pytest.mark.parametrize(
    ("took_s", "failed", "pause_s"),
    [(0.5, False, 0), (0.55, False, 2), (1.8, False, 5), (3, False, 6), (5, False, 10), (15, False, 30), (0, True, 10)],
)
def test_the_slower_a_broker_the_longer_it_is_avoided(took_s: float, failed: bool, pause_s: int):
    clock = FakeClock()
    strategy = MQFaultStrategy(clock.monotonic, send_latency_enable=True)
    strategy.update("a", took_s, failed=failed)
    if pause_s:
        assert chosen(strategy) == {"b"}
        clock.advance(pause_s - 0.001)
        assert chosen(strategy) == {"b"}
        clock.advance(0.001)
    assert chosen(strategy) == {"a", "b"}


def test_a_broker_that_is_fast_again_is_taken_at_once():
    strategy = MQFaultStrategy(FakeClock().monotonic, send_latency_enable=True)
    strategy.update("a", 15, failed=False)
    strategy.update("a", 0.01, failed=False)
    assert chosen(strategy) == {"a", "b"}


def test_when_all_are_to_be_avoided_one_is_taken_nevertheless():
    strategy = MQFaultStrategy(FakeClock().monotonic, send_latency_enable=True)
    for broker in ("a", "b"):
        strategy.update(broker, 0, failed=True)
    assert chosen(strategy) == {"a", "b"}
