"""Which queue is taken."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.client.message import Message
from rocketbroker.client.queue_selection import RoundRobin, select_by_hash
from rocketbroker.codec.message.message_ext import MessageQueue

QUEUES = [MessageQueue("T", broker, index) for broker in ("a", "b") for index in range(4)]


@given(st.integers(1, 40))
def test_queues_take_turns(rounds: int):
    robin = RoundRobin()
    counted = Counter(robin.select(QUEUES) for _ in range(rounds * len(QUEUES)))
    assert set(counted.values()) == {rounds}
    assert set(counted) == set(QUEUES)


def test_after_a_failure_another_broker_is_taken():
    robin = RoundRobin()
    assert {robin.select(QUEUES, {"a"}).broker_name for _ in range(20)} == {"b"}


def test_the_only_broker_is_taken_again():
    assert RoundRobin().select(QUEUES[:4], {"a"}).broker_name == "a"


def test_equal_keys_go_to_one_queue():
    message = Message("T", b"x")
    chosen = {key: select_by_hash(key)(QUEUES, message) for key in map(str, range(200))}
    assert chosen == {key: select_by_hash(key)(QUEUES, message) for key in chosen}
    assert len(set(chosen.values())) == len(QUEUES)
