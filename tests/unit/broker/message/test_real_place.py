import pytest

from rocketbroker.broker.message.real_place import real_place, with_real_place, without_real_place
from rocketbroker.codec.message.message_properties import encode_properties


def test_a_place_is_found_again_and_taken_away_again():
    plain = encode_properties({"TAGS": "A", "KEYS": "k"})
    raw = with_real_place(plain, "T", 3)
    assert raw == encode_properties({"TAGS": "A", "KEYS": "k", "REAL_TOPIC": "T", "REAL_QID": "3"})
    assert real_place(raw) == ("T", 3)
    assert without_real_place(raw) == plain


def test_the_last_place_counts():
    raw = with_real_place(with_real_place(b"", "first", 1), "second", 2)
    assert real_place(raw) == ("second", 2)
    assert without_real_place(raw) == b""


@pytest.mark.parametrize(
    ("topic", "queue_id"),
    [
        ("T", "-1"),
        ("T", "x"),
        ("T", ""),
        ("T", str(2**31)),
        ("T", "0" * 11),
        ("", "3"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "0"),
    ],
)
def test_no_place(topic, queue_id):
    raw = f"REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}\x02".encode()
    assert real_place(raw) is None
