import pytest

from rocketbroker.broker.timer.handle_schedule_message import HandleScheduleMessage
from rocketbroker.codec.message.message_properties import decode_properties, encode_properties
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner
from tests.support.fakes import FakeClock


def handled(sys_flag=0, config=None, **properties):
    message = MessageExtBrokerInner("T", 3, b"", encode_properties({"TAGS": "A", **properties}), sys_flag=sys_flag)
    HandleScheduleMessage(config or MessageStoreConfig(), FakeClock(), 18, lambda: 1000)(message)
    return message.topic, message.queue_id, decode_properties(message.properties)


def test_a_level_counts_before_a_time():
    topic, queue_id, properties = handled(DELAY="3", TIMER_DELAY_MS="5000", TIMER_DELIVER_MS="1", TIMER_DELAY_SEC="x")
    assert (topic, queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert properties == {"TAGS": "A", "DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "3"}


@pytest.mark.parametrize("level", ["0", "-1"])
def test_an_invalid_level_leaves_the_delivery_time(level):
    assert handled(DELAY=level, TIMER_DELAY_MS="5000")[0] == "rmq_sys_wheel_timer"


def test_a_message_that_is_due_stays_in_its_topic():
    assert handled() == ("T", 3, {"TAGS": "A"})


@pytest.mark.parametrize(("sys_flag", "topic"), [(4, "T"), (12, "T"), (8, "rmq_sys_wheel_timer")])
def test_half_messages_and_rollbacks_stay_and_committed_ones_wait(sys_flag, topic):
    assert handled(sys_flag, TIMER_DELAY_MS="5000")[0] == topic


def test_the_settings_hold():
    config = MessageStoreConfig(timer_max_delay_sec=4)
    with pytest.raises(BrokerResponseError, match="max delay 4000ms"):
        handled(config=config, TIMER_DELAY_MS="5000")
    with pytest.raises(BrokerResponseError, match="timerWheelEnable is false"):
        handled(config=MessageStoreConfig(timer_wheel_enable=False), TIMER_DELAY_MS="5000")
