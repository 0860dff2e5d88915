import asyncio

import pytest

from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.common.histogram import Histogram
from rocketbroker.processor.support import broker_fast_failure as module
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.store.commitlog import put_message
from rocketbroker.store.commitlog.put_message import ACKNOWLEDGED, REPLICATED, SYNCED, OnAcknowledged, StoredWait
from tests.support.fakes import FakeConnection


def waiting(fast_failure: BrokerFastFailure, count: int) -> list[OnAcknowledged]:
    """Let so many sends wait; returns a callback for each that ends its wait."""
    ends: list[OnAcknowledged] = []
    for _ in range(count):
        fast_failure.answer_when_acknowledged(StoredWait([(SYNCED, ends.append)]), str)
    return ends


async def test_a_send_comes_in_while_there_is_room():
    fast_failure = BrokerFastFailure(BrokerConfig(send_thread_pool_queue_capacity=2))
    waiting(fast_failure, 1)

    fast_failure.check(FakeConnection())


async def test_one_more_than_may_wait_is_rejected_until_one_is_answered():
    fast_failure = BrokerFastFailure(BrokerConfig(send_thread_pool_queue_capacity=2))
    first, _ = waiting(fast_failure, 2)

    with pytest.raises(BrokerResponseError) as error:
        fast_failure.check(FakeConnection())

    assert error.value.code == ResponseCode.SYSTEM_BUSY
    assert "[OVERLOAD]system busy" in error.value.remark
    assert "2 sends are not acknowledged yet; the limit is 2 (sendThreadPoolQueueCapacity)" in error.value.remark
    first(ACKNOWLEDGED)
    fast_failure.check(FakeConnection())


async def test_the_queue_of_sends_is_measured(monkeypatch):
    fast_failure = BrokerFastFailure(BrokerConfig(send_thread_pool_queue_capacity=7))
    set_times(monkeypatch, 10.0, 11.5, 12.25, 12.5, 13.0, 13.5)
    assert told(fast_failure) == ("0", "7", "0")
    first, second = waiting(fast_failure, 2)
    assert told(fast_failure) == ("2", "7", "2250")
    first(ACKNOWLEDGED)
    assert told(fast_failure) == ("1", "7", "1500")
    second(ACKNOWLEDGED)
    assert told(fast_failure) == ("0", "7", "0")


async def test_a_send_that_ends_before_an_older_one_leaves_its_time(monkeypatch):
    fast_failure = BrokerFastFailure(BrokerConfig(send_thread_pool_queue_capacity=7))
    set_times(monkeypatch, 10.0, 11.5, 12.0, 12.25)
    _, second = waiting(fast_failure, 2)

    second(ACKNOWLEDGED)

    assert told(fast_failure) == ("1", "7", "2250")


async def test_each_send_of_a_run_counts():
    fast_failure = BrokerFastFailure(BrokerConfig(send_thread_pool_queue_capacity=7))
    ends: list[OnAcknowledged] = []
    fast_failure.answer_when_acknowledged(StoredWait([(SYNCED, ends.append)]), str, 4)
    waiting(fast_failure, 1)

    assert (fast_failure.waiting, fast_failure.has_room(2), fast_failure.has_room(3)) == (5, True, False)
    ends[0](ACKNOWLEDGED)
    assert (fast_failure.waiting, fast_failure.has_room(6), fast_failure.has_room(7)) == (1, True, False)


def set_times(monkeypatch: pytest.MonkeyPatch, *times: float) -> None:
    monkeypatch.setattr(module, "monotonic", iter(times).__next__)


def told(fast_failure: BrokerFastFailure) -> tuple[str, ...]:
    keys = ("Size", "Capacity", "HeadWaitTimeMills")
    info = fast_failure.runtime_info()
    return tuple(info[f"sendThreadPoolQueue{key}"] for key in keys)


def test_a_send_that_waited_too_long_for_its_turn_is_rejected():
    config = BrokerConfig(wait_time_mills_in_send_queue=300)
    fast_failure = BrokerFastFailure(config)
    connection = FakeConnection()
    connection.waited_s = 0.299
    fast_failure.check(connection)
    connection.waited_s = 0.3005

    with pytest.raises(BrokerResponseError) as error:
        fast_failure.check(connection)

    assert error.value.code == ResponseCode.SYSTEM_BUSY
    assert "[TIMEOUT_CLEAN_QUEUE]broker busy" in error.value.remark
    assert "period in queue: 300ms" in error.value.remark
    assert "the limit is 300 ms (waitTimeMillsInSendQueue)" in error.value.remark
    apply_updates([config], {"brokerFastFailureEnable": "false"})
    fast_failure.check(connection)


async def test_waits_are_timed_for_metrics_alone():
    fast_failure = BrokerFastFailure(BrokerConfig())
    (first,) = waiting(fast_failure, 1)
    first(ACKNOWLEDGED)
    fast_failure.times = Histogram((1.0,))
    ends: list[OnAcknowledged] = []
    fast_failure.answer_when_acknowledged(StoredWait([(SYNCED, ends.append)]), str, 3)
    ends[0](ACKNOWLEDGED)

    assert fast_failure.times.buckets == [3, 0]


async def test_a_slow_send_has_its_parts_until_its_answer_is_written(monkeypatch: pytest.MonkeyPatch):
    fast_failure = BrokerFastFailure(BrokerConfig(), slow_s=1.0)
    ends: list[OnAcknowledged] = []
    wait = StoredWait([(SYNCED, ends.append), (REPLICATED, ends.append)])
    set_times(monkeypatch, 10.0, 10.25, 12.5)
    monkeypatch.setattr(put_message, "monotonic", iter([11.0, 12.5]).__next__)
    fast_failure.check(FakeConnection())
    answer = fast_failure.answer_when_acknowledged(wait, str)
    for end in ends:
        end(ACKNOWLEDGED)

    parts = fast_failure.parts_of(answer)
    assert parts is not None
    assert parts(3.0) == "waited 0.500 s, stored 0.250 s, synced 0.750 s, replicated 2.250 s"
    await answer
    await asyncio.sleep(0)
    assert fast_failure.parts_of(answer) is None


@pytest.mark.parametrize("slow_s", [0.0, 4.0])
async def test_a_send_within_the_limit_has_none(monkeypatch: pytest.MonkeyPatch, slow_s: float):
    fast_failure = BrokerFastFailure(BrokerConfig(), slow_s)
    ends: list[OnAcknowledged] = []
    set_times(monkeypatch, 10.0, 10.0, 12.0)
    assert fast_failure.has_room(1)
    answer = fast_failure.answer_when_acknowledged(StoredWait([(SYNCED, ends.append)]), str)
    ends[0](ACKNOWLEDGED)

    assert fast_failure.parts_of(answer) is None
