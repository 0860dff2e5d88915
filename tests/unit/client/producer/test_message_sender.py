"""Choice of queues and brokers, and the bound on sends in flight."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.message_sender import BackPressure, MQFaultStrategy, select_by_hash
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.errors import RemotingTooMuchRequestError
from tests.support.fakes import FakeClock


async def start(pressure: BackPressure, size: int, timeout_s: float = 10) -> "asyncio.Task[None]":
    task = asyncio.create_task(pressure.acquire(size, timeout_s))
    await asyncio.sleep(0)
    return task


async def test_a_send_waits_for_one_of_as_many_as_may_be_in_flight():
    pressure = BackPressure(2, 1000)
    tasks = [await start(pressure, 1) for _ in range(4)]
    assert [task.done() for task in tasks] == [True, True, False, False]
    pressure.release(1)
    await tasks[2]
    assert not tasks[3].done()
    pressure.release(1)
    await tasks[3]


async def test_a_large_body_goes_alone():
    pressure = BackPressure(10, 1000)
    large = await start(pressure, 5000)
    small = await start(pressure, 1)
    assert (large.done(), small.done()) == (True, False)
    pressure.release(5000)
    await small
    next_large = await start(pressure, 5000)
    assert not next_large.done()
    pressure.release(1)
    await next_large


async def test_nobody_overtakes_a_large_body_that_waits():
    pressure = BackPressure(10, 1000)
    await pressure.acquire(900, 1)
    large, small = await start(pressure, 200), await start(pressure, 1)
    assert not small.done()
    pressure.release(900)
    await asyncio.gather(large, small)


async def test_a_wait_without_end_is_an_error_that_names_the_settings():
    pressure = BackPressure(1, 1000)
    await pressure.acquire(10, 1)
    with pytest.raises(RemotingTooMuchRequestError, match="1 sends with 10 bytes are in flight"):
        await pressure.acquire(1, 0.001)
    pressure.release(10)
    await pressure.acquire(1, 1)


async def test_a_cancelled_send_takes_no_room():
    pressure = BackPressure(1, 1000)
    await pressure.acquire(1, 1)
    waiting, last = await start(pressure, 1), await start(pressure, 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    pressure.release(1)
    await last


async def test_a_send_cancelled_at_its_turn_gives_the_room_back():
    pressure = BackPressure(1, 1000)
    await pressure.acquire(1, 1)
    waiting = await start(pressure, 1)
    pressure.release(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await pressure.acquire(1, 0.001)


QUEUES = [MessageQueue("T", broker, index) for broker in ("a", "b") for index in range(4)]


@given(st.integers(1, 40))
def test_queues_take_turns(rounds: int):
    strategy = MQFaultStrategy(FakeClock().monotonic)
    counted = Counter(strategy.select(QUEUES) for _ in range(rounds * len(QUEUES)))
    assert set(counted.values()) == {rounds}
    assert set(counted) == set(QUEUES)


def test_after_a_failure_another_broker_is_taken():
    strategy = MQFaultStrategy(FakeClock().monotonic)
    assert {strategy.select(QUEUES, "a").broker_name for _ in range(20)} == {"b"}


def test_the_only_broker_is_taken_again():
    assert MQFaultStrategy(FakeClock().monotonic).select(QUEUES[:4], "a").broker_name == "a"


def test_equal_keys_go_to_one_queue():
    message = Message("T", b"x")
    chosen = {key: select_by_hash(key)(QUEUES, message) for key in map(str, range(200))}
    assert chosen == {key: select_by_hash(key)(QUEUES, message) for key in chosen}
    assert len(set(chosen.values())) == len(QUEUES)


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
