import pytest

from rocketbroker.broker.schedule.delay_rewrite import delay_rewrite
from rocketbroker.codec.message.message_properties import decode_properties, encode_properties
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner


def message(delay=None, sys_flag=0):
    properties = {"TAGS": "TagA"} if delay is None else {"TAGS": "TagA", "DELAY": delay}
    return MessageExtBrokerInner("T", 3, b"body", encode_properties(properties), sys_flag=sys_flag)


@pytest.mark.parametrize(("delay", "level"), [("1", 1), ("18", 18), ("19", 18), ("4000000000", 18), ("007", 7)])
def test_delayed(delay, level):
    delayed = message(delay)
    delay_rewrite(delayed, 18)
    assert (delayed.topic, delayed.queue_id) == ("SCHEDULE_TOPIC_XXXX", level - 1)
    properties = decode_properties(delayed.properties)
    assert int(properties.pop("DELAY")) == level
    assert properties == {"TAGS": "TagA", "REAL_TOPIC": "T", "REAL_QID": "3"}


@pytest.mark.parametrize(("delay", "sys_flag"), [(None, 0), ("0", 0), ("-1", 0), ("3", 4), ("3", 12)])
def test_not_delayed(delay, sys_flag):
    plain = message(delay, sys_flag)
    delay_rewrite(plain, 18)
    assert plain == message(delay, sys_flag)


def test_committed_message_is_delayed():
    delayed = message("3", sys_flag=8)
    delay_rewrite(delayed, 18)
    assert delayed.topic == "SCHEDULE_TOPIC_XXXX"


def test_clients_cannot_set_the_destination():
    forged = message("1")
    forged.properties += encode_properties({"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "99"})
    delay_rewrite(forged, 18)
    properties = decode_properties(forged.properties)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "3")


@pytest.mark.parametrize("delay", ["x", "1s", "--1", "1.5", "9" * 11, "\u0661", " 1"])
def test_level_that_is_no_number(delay):
    with pytest.raises(BrokerResponseError, match="DELAY") as error:
        delay_rewrite(message(delay), 18)
    assert error.value.code == ResponseCode.MESSAGE_ILLEGAL
