from rocketbroker.broker.timer.timer_requests import delete_key, key_of, rolled, stamped, timer_request
from rocketbroker.codec.message.message_properties import decode_properties, encode_properties

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
