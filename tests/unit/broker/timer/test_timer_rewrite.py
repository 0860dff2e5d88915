import pytest

from rocketbroker.broker.timer.timer_rewrite import (
    HandleScheduleMessage,
    TimerLimits,
    delete_key,
    forget_delivery_time,
    key_of,
    rolled,
    stamped,
    timer_request,
    timer_rewrite,
)
from rocketbroker.codec.message.message_properties import decode_properties, encode_properties
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner
from tests.support.fakes import FakeClock

NOW = 1_795_255_168_558
LIMITS = TimerLimits(True, 259_200_000, 1000)


def message(**properties):
    return MessageExtBrokerInner("T", 3, b"body", encode_properties({"TAGS": "A", **properties}))


@pytest.mark.proves(
    "Delayed messages",
    "timer messages (`TIMER_DELIVER_MS`, `TIMER_DELAY_SEC`, `TIMER_DELAY_MS`) at any time up to "
    "`timerMaxDelaySec`, over a broker that is killed",
)
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


@pytest.mark.proves(
    "Delayed messages",
    "a delay level or delivery time out of range, or not a number; a level above the highest is the highest",
)
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


PLACE = ("T", 1)


def test_the_request_of_a_message_comes_from_its_properties():
    raw = encode_properties({"TIMER_OUT_MS": "5000"})
    assert timer_request(raw, PLACE) == (5000, False)
    assert timer_request(raw + encode_properties({"TIMER_DEL_UNIQKEY": "K"}), PLACE) == (5000, True)
    assert timer_request(raw + encode_properties({"XTIMER_DEL_UNIQKEY": "K"}), PLACE) == (5000, False)
    assert timer_request(raw, None) is None
    for wrong in ("x", "-1", "9" * 19):
        assert timer_request(encode_properties({"TIMER_OUT_MS": wrong}), PLACE) is None
    assert timer_request(b"", PLACE) is None


def test_stamps_of_a_copy():
    raw = encode_properties({"TAGS": "A", "TIMER_OUT_MS": "5000"})
    once = stamped(raw, 3999, 1000, 6001)
    assert decode_properties(once) == {**decode_properties(raw), "TIMER_ENQUEUE_MS": "3000", "TIMER_DEQUEUE_MS": "6001"}
    twice = stamped(once, 7999, 1000, 9001)
    assert decode_properties(twice) == {
        **decode_properties(raw),
        "TIMER_ENQUEUE_MS": "7000",
        "TIMER_DEQUEUE_MS": "9001",
    }
    assert decode_properties(stamped(raw[:-1], 3999, 1000, 6001)) == decode_properties(once), (
        "without the last separator"
    )


def test_times_that_it_was_stored_again():
    once = rolled(encode_properties({"TAGS": "A"}))
    assert decode_properties(once) == {"TAGS": "A", "TIMER_ROLL_TIMES": "1"}
    assert decode_properties(rolled(once))["TIMER_ROLL_TIMES"] == "2"
    assert decode_properties(rolled(encode_properties({"TIMER_ROLL_TIMES": "x"})))["TIMER_ROLL_TIMES"] == "1"


def test_a_cancel_names_its_message():
    for named in ("K", "T+K"):
        assert delete_key(encode_properties({"REAL_TOPIC": "T", "TIMER_DEL_UNIQKEY": named})) == (b"T", b"K")
    assert key_of(encode_properties({"REAL_TOPIC": "T", "UNIQ_KEY": "K"})) == (b"T", b"K")
    assert delete_key(encode_properties({"REAL_TOPIC": "O", "TIMER_DEL_UNIQKEY": "T+K"})) == (b"O", b"T+K")


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
