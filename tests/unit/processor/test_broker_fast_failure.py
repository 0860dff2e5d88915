import pytest

from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.hot_change import apply_updates
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.broker_fast_failure import BrokerFastFailure
from tests.support.fakes import FakeConnection


def test_a_send_comes_in_while_there_is_room():
    fast_failure = BrokerFastFailure(BrokerConfig(send_thread_pool_queue_capacity=2))
    fast_failure.waiting = 1

    fast_failure.check(FakeConnection())


def test_one_more_than_may_wait_is_refused_until_one_is_answered():
    fast_failure = BrokerFastFailure(BrokerConfig(send_thread_pool_queue_capacity=2))
    fast_failure.waiting = 2

    with pytest.raises(BrokerResponseError) as error:
        fast_failure.check(FakeConnection())

    assert error.value.code == ResponseCode.SYSTEM_BUSY
    assert "[OVERLOAD]system busy" in error.value.remark
    assert "2 sends wait for the disk, the limit is 2 (sendThreadPoolQueueCapacity)" in error.value.remark
    fast_failure.waiting -= 1
    fast_failure.check(FakeConnection())


def test_a_send_that_waited_too_long_for_its_turn_is_refused():
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
