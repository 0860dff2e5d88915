"""Types of messages by their properties."""

import pytest

from rocketbroker.codec.message.topic_message_type import type_of


@pytest.mark.parametrize(
    ("properties", "wanted"),
    [
        ({}, "NORMAL"),
        ({"TRAN_MSG": "false"}, "NORMAL"),
        ({"_SYS_MSG_PRIORITY_": "3"}, "PRIORITY"),
        ({"__SHARDINGKEY": "g"}, "FIFO"),
        ({"DELAY": "3"}, "DELAY"),
        ({"TIMER_DELIVER_MS": "1"}, "DELAY"),
        ({"TIMER_DELAY_SEC": "1"}, "DELAY"),
        ({"TIMER_DELAY_MS": "1"}, "DELAY"),
        ({"TRAN_MSG": "True"}, "TRANSACTION"),
    ],
)
def test_one_property_names_the_type(properties: dict[str, str], wanted: str):
    assert type_of(properties) == wanted


def test_the_first_type_counts():
    properties = {"_SYS_MSG_PRIORITY_": "3"}
    for name, value, wanted in [
        ("__SHARDINGKEY", "g", "FIFO"),
        ("DELAY", "3", "DELAY"),
        ("TRAN_MSG", "true", "TRANSACTION"),
    ]:
        properties[name] = value
        assert type_of(properties) == wanted
