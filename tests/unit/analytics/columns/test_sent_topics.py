"""Topics that only brokers write to."""

import pytest

from rocketbroker.analytics.columns.sent_topics import NOT_SENT_PREFIXES, NOT_SENT_TOPICS


@pytest.mark.parametrize(
    ("topic", "is_sent"),
    [
        ("orders", True),
        ("BenchmarkTest", True),
        ("rmq_sys_wheel_timer", False),
        ("TRANS_CHECK_MAX_TIME_TOPIC", False),
        ("RMQ_SYS_TRANS_HALF_TOPIC", False),
        ("SCHEDULE_TOPIC_XXXX", False),
        ("%RETRY%G", False),
        ("%DLQ%G", False),
    ],
)
def test_messages_of_topics_closed_to_producers_were_not_sent(topic: str, is_sent: bool) -> None:
    assert (topic not in NOT_SENT_TOPICS and not topic.startswith(NOT_SENT_PREFIXES)) == is_sent
