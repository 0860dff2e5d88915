"""Topics by which a message that was found is known."""

import pytest

from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.processor.support.found_messages import check_found, check_found_record, topics_of
from tests.support.fake_queues import record


def found(topic: str, **properties: str) -> MessageExt:
    return decode_record(record(MessageQueue(topic, "b", 0), 0, properties=encode_properties(properties)))


@pytest.mark.parametrize(
    ("topic", "properties", "topics"),
    [
        ("T", {}, ["T"]),
        ("T", {"REAL_TOPIC": "mine", "RETRY_TOPIC": "mine"}, ["T"]),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {"REAL_TOPIC": "T"}, ["RMQ_SYS_TRANS_HALF_TOPIC", "T"]),
        ("TRANS_CHECK_MAX_TIME_TOPIC", {"REAL_TOPIC": "T"}, ["TRANS_CHECK_MAX_TIME_TOPIC", "T"]),
        ("rmq_sys_wheel_timer", {"REAL_TOPIC": "T"}, ["rmq_sys_wheel_timer", "T"]),
        ("rmq_sys_wheel_timer", {}, ["rmq_sys_wheel_timer"]),
        (
            "SCHEDULE_TOPIC_XXXX",
            {"REAL_TOPIC": "%RETRY%G", "RETRY_TOPIC": "T"},
            ["SCHEDULE_TOPIC_XXXX", "%RETRY%G", "T"],
        ),
        ("%RETRY%G", {"RETRY_TOPIC": "T", "REAL_TOPIC": "mine"}, ["%RETRY%G", "T"]),
        ("%DLQ%G", {"RETRY_TOPIC": "T"}, ["%DLQ%G", "T"]),
    ],
)
def test_a_copy_is_known_by_its_own_topic_and_the_real_one(topic: str, properties: dict[str, str], topics: list[str]):
    assert topics_of(found(topic, **properties)) == topics


def test_without_access_control_nothing_is_read():
    check_found(None, found("T"), ())
    check_found_record(None, b"no record", ())
