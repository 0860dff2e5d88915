import pytest

from rocketbroker.broker.timer.timer_rewrite import TimerLimits, forget_delivery_time, timer_rewrite
from rocketbroker.codec.message.message_properties import decode_properties, encode_properties
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner

NOW = 1_795_255_168_558
LIMITS = TimerLimits(True, 259_200_000, 1000)


def message(**properties):
    return MessageExtBrokerInner("T", 3, b"body", encode_properties({"TAGS": "A", **properties}))


@pytest.mark.parametrize(
    ("name", "value", "slot_ms"),
    [
        ("TIMER_DELAY_MS", "3000", 1_795_255_171_000),
        ("TIMER_DELAY_SEC", "3", 1_795_255_171_000),
        ("TIMER_DELIVER_MS", "1795255171558", 1_795_255_171_000),
        ("TIMER_DELIVER_MS", "1795255171000", 1_795_255_170_000),
        ("TIMER_DELIVER_MS", "1795255171001", 1_795_255_171_000),
        ("TIMER_DELIVER_MS", str(NOW + 1), 1_795_255_168_000),
        ("TIMER_DELAY_SEC", "259200", 1_795_514_368_000),
    ],
)
def test_a_time_to_come(name, value, slot_ms):
    sent = message(**{name: value})
    timer_rewrite(sent, LIMITS, NOW)
    assert (sent.topic, sent.queue_id) == ("rmq_sys_wheel_timer", 0)
    assert decode_properties(sent.properties) == {
        "TAGS": "A",
        name: value,
        "TIMER_OUT_MS": str(slot_ms),
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
    }


def test_slots_of_another_precision():
    sent = message(TIMER_DELAY_MS="3000")
    timer_rewrite(sent, LIMITS._replace(precision_ms=100), NOW)
    assert decode_properties(sent.properties)["TIMER_OUT_MS"] == "1795255171500"


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"TIMER_DELAY_MS": "0"},
        {"TIMER_DELAY_SEC": "-5"},
        {"TIMER_DELIVER_MS": str(NOW)},
        {"TIMER_DELIVER_MS": "-1"},
        {"TIMER_DELIVER_MS": str(NOW + 5000), "TIMER_OUT_MS": "1"},
    ],
)
def test_messages_without_a_future_time_are_stored_at_once(properties):
    sent = message(**properties)
    timer_rewrite(sent, LIMITS, NOW)
    assert sent == message(**properties)


def test_the_first_of_several_times_counts():
    sent = message(TIMER_DELIVER_MS=str(NOW + 9000), TIMER_DELAY_MS="5000", TIMER_DELAY_SEC="2")
    timer_rewrite(sent, LIMITS, NOW)
    assert decode_properties(sent.properties)["TIMER_OUT_MS"] == "1795255170000"


@pytest.mark.parametrize(
    ("properties", "measured"),
    [
        ({"TIMER_DELAY_SEC": "259201"}, "its delay is 259201000 ms"),
        ({"TIMER_DELAY_MS": "259200001"}, "its delay is 259200001 ms"),
        ({"TIMER_DELIVER_MS": str(2**63 - 1)}, "its delay is"),
        ({"TIMER_DELAY_SEC": str(2**63 - 1)}, "its delay is"),
        ({"TIMER_DELAY_SEC": str(2**63)}, "set it to a whole number"),
        ({"TIMER_DELAY_SEC": "1.5"}, "set it to a whole number"),
        ({"TIMER_DELIVER_MS": "soon"}, "set it to a whole number"),
        ({"TIMER_DELIVER_MS": str(NOW), "TIMER_DEL_UNIQKEY": "k"}, "was due 0 ms ago"),
        ({"TIMER_DELAY_MS": "-9", "TIMER_DEL_UNIQKEY": "k"}, "was due 9 ms ago"),
    ],
)
def test_a_time_out_of_range_is_rejected(properties, measured):
    with pytest.raises(BrokerResponseError, match="timer message illegal") as error:
        timer_rewrite(message(**properties), LIMITS, NOW)
    assert error.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert measured in error.value.remark


def test_the_remark_names_the_limit():
    with pytest.raises(BrokerResponseError, match=r"bigger than the max delay 259200000ms.*\(timerMaxDelaySec\)"):
        timer_rewrite(message(TIMER_DELAY_SEC="259201"), LIMITS, NOW)


def test_a_timer_that_is_switched_off():
    with pytest.raises(BrokerResponseError, match="timerWheelEnable is false") as error:
        timer_rewrite(message(TIMER_DELAY_MS="3000"), LIMITS._replace(enabled=False), NOW)
    assert error.value.code == ResponseCode.SYSTEM_ERROR


def test_clients_cannot_set_the_destination():
    sent = message(TIMER_DELAY_MS="3000", REAL_TOPIC="RMQ_SYS_TRANS_HALF_TOPIC", REAL_QID="99")
    timer_rewrite(sent, LIMITS, NOW)
    properties = decode_properties(sent.properties)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "3")


def test_a_forgotten_time():
    sent = message(TIMER_DELIVER_MS="1", TIMER_DELAY_MS="5000", TIMER_DELAY_SEC="2")
    forget_delivery_time(sent)
    assert sent == message()
