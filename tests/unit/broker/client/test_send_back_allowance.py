import pytest

from rocketbroker.broker.client.send_back_allowance import SendBackAllowance
from rocketbroker.common.config import BrokerConfig
from tests.support.fakes import FakeClock, FakeConnection

RATE = 100


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def allowance(clock: FakeClock) -> SendBackAllowance:
    found = SendBackAllowance(BrokerConfig(consumer_send_msg_back_bytes_per_second=RATE), clock)
    assert found.take(FakeConnection(), 10 * RATE), "what the rate has kept"
    return found


def test_a_consumer_sends_back_what_it_was_given_once(allowance: SendBackAllowance):
    consumer, other = FakeConnection(), FakeConnection()
    allowance.give(consumer, 5_000)
    allowance.give(consumer, 5_000)
    assert [allowance.take(consumer, 4_000) for _ in range(3)] == [True, True, False]
    assert allowance.take(consumer, 2_000)
    assert not allowance.take(consumer, 1)
    assert not allowance.take(other, 1)


def test_others_are_sent_back_at_a_rate(allowance: SendBackAllowance, clock: FakeClock):
    sent = 0
    for _ in range(1_000):
        clock.advance(0.1)
        sent += 40 * allowance.take(FakeConnection(), 40)
    assert 100 * RATE - 40 <= sent <= 100 * RATE + 40


def test_nothing_is_kept_of_a_connection_that_is_closed(allowance: SendBackAllowance):
    consumer = FakeConnection()
    allowance.give(consumer, 5_000)
    allowance.on_close(consumer)
    consumer.is_open = False
    allowance.give(consumer, 5_000)
    assert not allowance.take(consumer, 1)
    assert allowance._given == {}
