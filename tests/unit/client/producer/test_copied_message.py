"""A message made from a stored one: what is kept, and what the send sets again."""

import pytest

from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.client.producer.copied_message import copied_message


def test_what_the_application_gave_is_kept():
    properties = {
        "KEYS": "k1 k2",
        "TAGS": "A",
        "WAIT": "false",
        "UNIQ_KEY": "ID",
        "DELAY": "3",
        "RETRY_TOPIC": "T",
        "colour": "red",
        "__SHARDINGKEY": "s",
    }
    message = copied_message("U", b"body", properties, 7, more={"RESENT": "yes"})
    assert (message.topic, message.body, message.flag) == ("U", b"body", 7)
    assert (message.keys, message.tags, message.wait_store_msg_ok) == ("k1 k2", "A", False)
    assert message.properties == {"colour": "red", "__SHARDINGKEY": "s", "RESENT": "yes"}


def test_what_cannot_be_sent_is_refused():
    with pytest.raises(InvalidMessageError, match="body is empty"):
        copied_message("T", b"", {}, 0)
    with pytest.raises(InvalidMessageError, match="forbidden"):
        copied_message("SCHEDULE_TOPIC_XXXX", b"x", {}, 0)
