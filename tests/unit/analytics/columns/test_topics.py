"""Topics that only brokers write to."""

import pytest

from rocketbroker.analytics.columns.topics import NOT_SENT_PREFIXES, NOT_SENT_TOPICS, retry_group
from tests.support.retry_names import RETRY_NAMES


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


@pytest.mark.parametrize(("name", "properties", "group"), RETRY_NAMES)
def test_the_group_follows_from_the_name_and_the_message(name: str, properties: dict[str, str], group: str) -> None:
    assert retry_group(f"%RETRY%{name}", properties) == group
